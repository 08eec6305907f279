//! What passes after a ClientHello, by what the server answered, however both are cut up.

use super::*;

const PYTHON: &[u8] = include_bytes!("../../../tests/seeds/hello/python");

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &u16::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
}

fn server_hello(random: [u8; 32]) -> Vec<u8> {
    let body = [&[3, 3][..], &random, &[0, 0x13, 1, 0, 0, 0]].concat();
    [&[2, 0, 0, u8::try_from(body.len()).unwrap()][..], &body].concat()
}

fn server(parts: &[&[u8]]) -> ServerFlight {
    let mut flight = ServerFlight::default();
    parts.iter().for_each(|part| flight.read(part));
    flight
}

/// Everything that the client may send after its first ClientHello, and the names of the others.
fn passed(bytes: &[u8], server: &ServerFlight) -> (usize, Vec<Option<String>>, Result<WatchStep, &'static str>) {
    let (mut watch, mut at, mut names) = (ClientFlight::default(), 0, Vec::new());
    loop {
        match watch.step(&bytes[at..], server) {
            Ok(WatchStep::Pass(count)) => at += count,
            Ok(WatchStep::Hello(hello, length)) => {
                names.push(hello.server_name);
                at += length;
            }
            end => return (at, names, end),
        }
    }
}

#[test]
fn the_retry_of_the_rfc_is_known() {
    assert_eq!(RETRY_RANDOM[..4], [0xcf, 0x21, 0xad, 0x74]);
    let retry = server(&[&record(22, &server_hello(RETRY_RANDOM))]);
    assert_eq!((retry.answer(1), retry.answer(2)), (HelloAnswer::Retry, HelloAnswer::Awaited));
    let mut other = RETRY_RANDOM;
    other[31] ^= 1;
    assert_eq!(server(&[&record(22, &server_hello(other))]).answer(1), HelloAnswer::Hello);
}

#[test]
fn an_answer_may_be_cut_up_anywhere() {
    let message = server_hello(RETRY_RANDOM);
    let again = server_hello([7; 32]);
    for size in 1..=message.len() {
        let records = |message: &[u8]| message.chunks(size).flat_map(|part| record(22, part)).collect::<Vec<u8>>();
        let all = [record(21, &[1, 112]), records(&message), record(20, &[1]), records(&again)].concat();
        for step in [1, 2, 3, 7, all.len()] {
            let (mut flight, mut seen) = (ServerFlight::default(), Vec::new());
            for part in all.chunks(step) {
                flight.read(part);
                assert!(flight.header.len() < 5 && flight.message.len() <= SERVER_HELLO);
                seen.push(flight.answer(1));
            }
            seen.dedup();
            let expected = [HelloAnswer::Awaited, HelloAnswer::Retry, HelloAnswer::Hello];
            assert_eq!(seen.iter().filter(|one| !expected.contains(one)).count(), 0, "{seen:?}");
            assert_eq!(flight.answer(1), HelloAnswer::Hello);
            assert_eq!(flight.retries, 1);
        }
    }
    // Two messages in one record.
    assert_eq!(server(&[&record(22, &[&message[..], &again].concat())]).answer(1), HelloAnswer::Hello);
}

#[test]
fn a_server_that_is_not_understood_has_not_gone_on() {
    for bytes in
        [&b"HTTP/1.1 400"[..], &record(22, &[0, 0, 0, 0]), &record(23, &[1]), &[22, 2, 0, 0, 1], &[22, 3, 3, 255, 255]]
    {
        assert_eq!(server(&[bytes]).answer(1), HelloAnswer::Unknown, "{bytes:?}");
    }
    let mut ended = ServerFlight::default();
    ended.end();
    assert_eq!(ended.answer(1), HelloAnswer::Unknown);
    let (at, names, end) = passed(&[&record(20, &[1])[..], PYTHON].concat(), &ended);
    assert_eq!((at, names.len(), end), (6 + PYTHON.len(), 1, Ok(WatchStep::More)));
}

#[test]
fn handshakes_wait_for_the_answer_and_early_data_does_not() {
    let early = [record(20, &[1]), record(23, &[9; 300])].concat();
    let (at, _, end) = passed(&[&early[..], PYTHON].concat(), &ServerFlight::default());
    assert_eq!((at, end), (early.len(), Ok(WatchStep::Wait)));
}

#[test]
fn a_second_greeting_is_given_out_whole() {
    let retry = server(&[&record(22, &server_hello(RETRY_RANDOM))]);
    let before = [record(20, &[1]), record(23, &[9; 300]), record(21, &[1, 0])].concat();
    let all = [&before[..], PYTHON].concat();
    for end in 0..all.len() {
        let (at, names, end_step) = passed(&all[..end], &retry);
        assert!(at <= end.min(before.len()) && names.is_empty(), "{end}");
        assert_eq!(end_step, Ok(WatchStep::More));
    }
    let (at, names, end) = passed(&all, &retry);
    assert_eq!((at, names, end), (all.len(), vec![Some("api.example.com".into())], Ok(WatchStep::More)));
    // A third one waits until the server has asked for it as well.
    assert_eq!(passed(&[&all[..], PYTHON].concat(), &retry).2, Ok(WatchStep::Wait));
    let twice = server(&[&record(22, &server_hello(RETRY_RANDOM)), &record(22, &server_hello(RETRY_RANDOM))]);
    assert_eq!(passed(&[&all[..], PYTHON].concat(), &twice).1.len(), 2);
    // Nothing but a greeting follows a retry.
    assert!(passed(&record(22, &[16, 0, 0, 1, 9]), &retry).2.is_err());
    assert!(passed(&record(22, &[]), &retry).2.is_err());
}

#[test]
fn a_handshake_that_went_on_passes_and_has_no_second_greeting() {
    let on = server(&[&record(22, &server_hello([7; 32]))]);
    for rest in [record(22, &[16, 0, 0, 1, 9]), record(20, &[1]), record(23, &[1])] {
        let all = [&record(21, &[1, 0])[..], &rest, PYTHON].concat();
        assert_eq!(passed(&all, &on), (7, vec![], Ok(WatchStep::Done)));
    }
    assert!(passed(PYTHON, &on).2.is_err());
    assert!(passed(&record(25, &[1]), &on).2.is_err());
    assert!(passed(b"\x80\x2e\x01\x03\x03", &on).2.is_err());
}
