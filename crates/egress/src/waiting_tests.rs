use super::*;
use crate::testing::rules;

fn question(host: &str, port: u16) -> Question {
    Question {
        destination: Destination::parse(host).unwrap(),
        port,
        scheme: Scheme::Https,
        methods: None,
        rule: "egress default: ask".to_owned(),
        opening: Opening::default(),
        push: None,
    }
}

fn asks(joined: Joined) -> (Number, Waiter) {
    match joined {
        Joined::Asks(number, _, waiter) => (number, waiter),
        other => panic!("{other:?}"),
    }
}

fn waits(joined: Joined) -> Waiter {
    match joined {
        Joined::Waits(waiter) => waiter,
        other => panic!("{other:?}"),
    }
}

fn is_refused(joined: &Joined, word: &str) -> bool {
    matches!(joined, Joined::Refused(why) if why.contains(word))
}

fn approved() -> Answer {
    Answer::Approved { approval_id: "a".to_owned() }
}

fn denied() -> Answer {
    Answer::Denied { approval_id: "a".to_owned(), comment: "not that one".to_owned() }
}

#[test]
fn a_reviewer_reads_what_happens_to_requests() {
    let door = r#"{"rules": [{"host": "model.internal", "ports": [80], "scheme": "http", "paths": ["/v1/*"],
        "upstream": "https://api.example.org", "inject": {"header": "x-api-key", "value": "${secret:model}"},
        "meter": "tokens", "decision": "ask"}]}"#;
    let plain = question("model.internal", 80);
    assert_eq!(plain.demands(), "");
    let opening = rules(door).decide(&plain.destination, 80).opening;
    let asked = Question { opening, ..plain.clone() };
    assert_eq!(
        asked.demands(),
        "Paths: /v1/* alone.\n\
         Requests go to https://api.example.org in place of this host.\n\
         Each request gets secrets outside of the run: model (header x-api-key).\n\
         Tokens that its responses say are counted.\n"
    );
    let (mut waiting, now) = (Waiting::default(), Instant::now());
    asks(waiting.join(plain.clone(), now));
    asks(waiting.join(asked, now));

    let many: Vec<String> = (10..30).map(|number| format!(r#""/{number}""#)).collect();
    let opening = rules(&door.replace(r#""/v1/*""#, &many.join(","))).decide(&plain.destination, 80).opening;
    let words = Question { opening, ..plain }.demands();
    assert!(words.starts_with("Paths: /10, /11, ") && words.contains("/25 and 4 more alone."), "{words}");
}

#[test]
fn connections_to_one_host_and_port_share_a_question_and_its_answer() {
    let (mut waiting, now) = (Waiting::default(), Instant::now());
    let (number, one) = asks(waiting.join(question("a.example.org", 443), now));
    let two = waits(waiting.join(question("a.example.org", 443), now));
    let (_, other_port) = asks(waiting.join(question("a.example.org", 80), now));
    let other_scheme = Question { scheme: Scheme::Tcp, ..question("a.example.org", 443) };
    let (_, other_scheme) = asks(waiting.join(other_scheme, now));
    waiting.settle(number, &question("a.example.org", 443), approved(), now);
    assert_eq!([&one, &two].map(|waiter| waiter.borrow().clone()), [Some(approved()), Some(approved())]);
    assert_eq!([&other_port, &other_scheme].map(|waiter| waiter.borrow().clone()), [None, None]);
    // Consent is for those that waited.
    asks(waiting.join(question("a.example.org", 443), now));
}

#[test]
fn a_denial_holds_for_its_host_and_port_and_then_no_longer() {
    let (mut waiting, now) = (Waiting::default(), Instant::now());
    let (number, _waiter) = asks(waiting.join(question("a.example.org", 443), now));
    waiting.settle(number, &question("a.example.org", 443), denied(), now);
    let later = (now + DENIED).checked_sub(Duration::from_secs(1)).unwrap();
    for _ in 0..1_000 {
        assert!(is_refused(&waiting.join(question("a.example.org", 443), later), "not that one"));
    }
    let other_scheme = Question { scheme: Scheme::Tcp, ..question("a.example.org", 443) };
    assert!(is_refused(&waiting.join(other_scheme, later), "denied"), "whatever the rule is");
    asks(waiting.join(question("a.example.org", 80), later));
    asks(waiting.join(question("a.example.org", 443), now + DENIED));
}

#[test]
fn questions_are_bounded_at_once_and_in_a_minute() {
    let (mut waiting, now) = (Waiting::default(), Instant::now());
    let open: Vec<_> =
        (0..OPEN).map(|n| asks(waiting.join(question(&format!("h{n}.example.org"), 443), now))).collect();
    assert!(is_refused(&waiting.join(question("more.example.org", 443), now), "wait for a reviewer already"));
    waits(waiting.join(question("h0.example.org", 443), now));
    for (number, waiter) in open {
        drop(waiter);
        assert!(waiting.close_left(number));
    }
    let more = (0..100).map(|n| waiting.join(question(&format!("m{n}.example.org"), 443), now));
    let asked = more.filter(|joined| matches!(joined, Joined::Asks(..))).count();
    assert_eq!(OPEN + asked, PER_MINUTE as usize);
    let at = now + Duration::from_secs(60);
    assert!(matches!(waiting.join(question("x.example.org", 443), at), Joined::Asks(..)));
}

#[test]
fn a_question_is_closed_when_nobody_waits_and_not_before() {
    let (mut waiting, now) = (Waiting::default(), Instant::now());
    let (number, one) = asks(waiting.join(question("a.example.org", 443), now));
    let two = waits(waiting.join(question("a.example.org", 443), now));
    drop(one);
    assert!(!waiting.close_left(number));
    drop(two);
    // A program that comes back in time joins the same question.
    let again = waits(waiting.join(question("a.example.org", 443), now));
    assert!(!waiting.close_left(number));
    drop(again);
    assert!(waiting.close_left(number));
    asks(waiting.join(question("a.example.org", 443), now));
    // An answer that comes too late changes nothing but a denial.
    waiting.settle(number, &question("a.example.org", 443), denied(), now);
    assert!(is_refused(&waiting.join(question("a.example.org", 443), now), "denied"));
}

#[test]
fn denials_are_bounded() {
    let (mut waiting, now) = (Waiting::default(), Instant::now());
    for n in 0..=DENIALS {
        let asked = question(&format!("h{n}.example.org"), 443);
        waiting.settle(Number(0), &asked, denied(), now);
    }
    let known = |waiting: &mut Waiting, host: &str| waiting.denied(&question(host, 443), now).is_some();
    assert!(!known(&mut waiting, "h0.example.org"));
    assert!(known(&mut waiting, "h1.example.org") && known(&mut waiting, &format!("h{DENIALS}.example.org")));
}

#[test]
fn each_answer_says_what_to_do_next() {
    for (answer, word) in [
        (denied(), "go on without this host"),
        (Answer::Expired { approval_id: "a".to_owned() }, "asks again"),
        (Answer::Cancelled, "Connect again"),
        (Answer::Unasked("the log is full".to_owned()), "the log is full"),
    ] {
        assert!(answer.words().contains(word), "{answer:?}");
    }
}
