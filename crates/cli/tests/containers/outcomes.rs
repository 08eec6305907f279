//! How runs end, and what their outcomes say.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::Test;
use crate::world::{World, carrying, eventually, marker};

pub(crate) const TESTS: &[Test] = &[
    ("outcomes::exit_code_output_and_figures", exit_code_output_and_figures),
    ("outcomes::a_signal", a_signal),
    ("outcomes::streams_pass_through_as_they_come", streams_pass_through_as_they_come),
    ("outcomes::output_is_bounded", output_is_bounded),
    ("outcomes::input_reaches_the_program", input_reaches_the_program),
    ("outcomes::no_such_program_and_no_program", no_such_program_and_no_program),
    ("outcomes::the_clock_ends_the_container", the_clock_ends_the_container),
    ("outcomes::no_list_of_violations_is_complete", no_list_of_violations_is_complete),
    ("outcomes::an_interrupt_ends_the_container", an_interrupt_ends_the_container),
];

fn exit_code_output_and_figures(world: &World) {
    let run = world.run(&[], &["/bin/sh", "-c", "echo out; echo err >&2; sleep 0.3; exit 5"]);
    assert_eq!(
        (run.code, run.text("outcome"), run.text("stdout"), run.text("stderr")),
        (5, "exited", "out\n", "err\n")
    );
    assert_eq!(run.text("backend"), world.runtime.backend);
    let took = run.outcome["execution_time_ms"].as_f64().unwrap();
    assert!((250.0..5000.0).contains(&took), "the start of the container counts as the program's time: {took}");
    let memory = run.outcome["memory_used_bytes"].as_u64();
    assert!(memory.is_none_or(|bytes| bytes > 0 && bytes < 256 << 20), "{memory:?}");
    assert!(run.outcome["cpu_time_seconds"].as_f64().is_none_or(|s| s < 5.0), "{}", run.outcome);
    if world.runtime.kind.is_some() && cofferdam_test_containers::engine::uid() == 0 {
        assert!(memory.is_some() && run.outcome["pid_count"].as_u64().is_some_and(|n| n >= 2), "{}", run.outcome);
    }
}

fn a_signal(world: &World) {
    let run = world.run(&[], &["/bin/sh", "-c", "kill -SEGV $$"]);
    assert_eq!(
        (run.code, run.text("outcome"), run.outcome["signal"].as_i64()),
        (139, "signalled", Some(11)),
        "{run:?}"
    );
}

fn streams_pass_through_as_they_come(world: &World) {
    let image = world.image.to_str().unwrap();
    let mut command = world.command();
    command.args(["--image", image, "--", "/bin/sh", "-c", "echo early; sleep 0.2; echo late >&2; exit 3"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "early\n");
    // The preparation of an image is reported as well.
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let of_the_program: Vec<&str> = message.lines().filter(|line| !line.starts_with("cofferdam: ")).collect();
    assert_eq!(of_the_program, ["late"], "{message}");
}

fn output_is_bounded(world: &World) {
    let script = "yes | head -c 3000000; yes | head -c 3000000 >&2";
    let run = world.run(&["--output-limit", "64k"], &["/bin/sh", "-c", script]);
    assert_eq!(
        (run.code, run.text("stdout").len(), run.text("stderr").len()),
        (0, 65536, 65536),
        "{:?}",
        run.outcome["error"]
    );
    assert_eq!(
        (&run.outcome["truncated"]["stdout"], &run.outcome["truncated"]["stderr"]),
        (&true.into(), &true.into())
    );
    let whole = world.run(&["--output-limit", "64k"], &["/bin/sh", "-c", "yes | head -c 65536"]);
    assert_eq!((whole.text("stdout").len(), &whole.outcome["truncated"]["stdout"]), (65536, &false.into()));
}

fn input_reaches_the_program(world: &World) {
    let image = world.image.to_str().unwrap();
    let mut command = world.command();
    command.args(["-i", "--image", image, "--", "/bin/wc", "-c"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(&vec![b'x'; 1 << 20]).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1048576", "{output:?}");
    let closed = world.run(&[], &["/bin/wc", "-c"]);
    assert_eq!(closed.text("stdout").trim(), "0", "{closed:?}");
}

fn no_such_program_and_no_program(world: &World) {
    let missing = world.run(&[], &["/bin/not-there"]);
    assert_eq!((missing.code, missing.text("outcome")), (127, "setup_failed"), "{missing:?}");
    let no_program = world.run(&[], &["/etc/passwd"]);
    assert_eq!((no_program.code, no_program.text("outcome")), (126, "setup_failed"), "{no_program:?}");
    assert_eq!(world.run(&[], &["sh", "-c", "exit 4"]).code, 4, "a name is looked up on the PATH inside");
}

fn the_clock_ends_the_container(world: &World) {
    let mark = marker();
    let script = format!("(trap '' TERM; probe hold {mark}) & setsid probe hold {mark} & probe hold {mark}");
    let started = Instant::now();
    let run = world.run(&["--timeout", "1s"], &["/bin/sh", "-c", &script]);
    assert_eq!((run.code, run.text("outcome")), (124, "timed_out"), "{run:?}");
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    let took = run.outcome["execution_time_ms"].as_f64().unwrap();
    assert!((950.0..4000.0).contains(&took), "{took}");
    assert_eq!(carrying(&mark), Vec::<i32>::new(), "the client ended and the container did not");
}

fn an_interrupt_ends_the_container(world: &World) {
    let mark = marker();
    let child = world.holding(&[], &mark);
    let owner = child.id();
    rustix::process::kill_process(rustix::process::Pid::from_raw(owner as i32).unwrap(), rustix::process::Signal::INT)
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    eventually("it runs on", Duration::from_secs(3), || carrying(&mark).is_empty());
    assert_eq!(world.containers_of(owner), Vec::<String>::new());
}

fn no_list_of_violations_is_complete(world: &World) {
    if world.runtime.backend == "oci:runsc" {
        return; // it refuses --trace
    }
    // Whichever calls the runtime's own filter refuses, nobody reports them.
    let run = world.run(&["--trace"], &["/bin/probe", "reach", "127.0.0.1", "9"]);
    assert!(run.refused().contains(&"socket"), "{run:?}");
    assert_eq!(run.outcome["violations_complete"], false, "{run:?}");
}
