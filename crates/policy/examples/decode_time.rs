//! Measures parse + decode + validate of a policy with 10,000 denied paths; build it with `--release`.

use std::time::{Duration, Instant};

use cofferdam_policy::Policy;

fn main() {
    let paths: Vec<String> =
        (0..10_000).map(|i| format!("\"/srv/data/project-{:04}/secret-{i:05}.key\"", i % 97)).collect();
    let text = format!(
        r#"{{"version":1,"command":{{"argv":["true"],"cwd":"/srv"}},"filesystem":{{"root":"host","deny":[{}]}}}}"#,
        paths.join(",")
    );
    let mut times: Vec<Duration> = (0..200)
        .map(|_| {
            let start = Instant::now();
            let policy = Policy::from_json(text.as_bytes()).unwrap_or_else(|errors| panic!("{errors}"));
            let taken = start.elapsed();
            assert_eq!(policy.filesystem.deny.len(), 10_000);
            taken
        })
        .collect();
    times.sort_unstable();
    println!("{} bytes: median {:?}, fastest {:?}, slowest {:?}", text.len(), times[100], times[0], times[199]);
}
