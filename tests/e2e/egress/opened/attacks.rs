//! Attacks on secrets and budgets that need a whole daemon.

use harness::{calls, dev_image, requests, v1};

use super::super::{details, shell};
use super::{Keys, Origin, SECRET, ok};

fn door(port: u16) -> String {
    format!(
        "{{ host: model.example.org, ports: [80], scheme: http, upstream: \"https://files.example.org:{port}\", \
         inject: {{ header: x-api-key, value: \"${{secret:model}}\" }}, meter: tokens, decision: allow }}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn s50_a_value_that_would_add_a_header_stops_the_request_and_is_not_said() {
    let keys = Keys::make();
    let origin = Origin::start(Some(&keys.certificates), |_| ok("text/plain", "fine")).await;
    let daemon = keys.daemon(&[door(origin.port)], "").await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let ask = "printf 'GET /v1/a HTTP/1.1\\r\\nHost: model.example.org\\r\\nConnection: close\\r\\n\\r\\n' | nc -w 5 model.example.org 80";
    for value in [
        "a\r\nX-Evil: 1",
        "a\nX-Evil: 1",
        "a\n\nGET /evil HTTP/1.1",
        "a\0evil",
        "a evil",
        "\u{e9}vil",
        "",
        " ",
    ] {
        keys.write(value);
        let (_, said) = shell(&mut run, ask).await;
        assert!(said.starts_with("HTTP/1.1 502") && said.contains("model"), "{value:?}: {said}");
        assert!(!said.to_ascii_lowercase().contains("evil"), "{value:?}: {said}");
    }
    assert!(origin.requests().is_empty(), "{:?}", origin.requests());
    assert!(!daemon.log().to_ascii_lowercase().contains("evil"));
    keys.write(SECRET);
    let (_, said) = shell(&mut run, ask).await;
    assert!(said.ends_with("fine"), "{said}");
}

/// Sends 200 requests at once over as many connections, and prints how many had each status.
const RACE: &str = "\
import asyncio, collections, socket
address = socket.gethostbyname('model.example.org')
async def one(go):
    reader, writer = await asyncio.open_connection(address, 80)
    await go.wait()
    writer.write(b'POST /v1/a HTTP/1.1\\r\\nHost: model.example.org\\r\\nContent-Length: 1\\r\\nConnection: close\\r\\n\\r\\nx')
    return (await reader.read()).split(b' ', 2)[1].decode()
async def all():
    go = asyncio.Event()
    waiting = [asyncio.create_task(one(go)) for _ in range(200)]
    await asyncio.sleep(1)
    go.set()
    for status, count in sorted(collections.Counter(await asyncio.gather(*waiting)).items()):
        print(status, count)
asyncio.run(all())
";

#[tokio::test(flavor = "multi_thread")]
async fn s51_two_hundred_requests_at_once_pass_no_bound_of_requests() {
    let keys = Keys::make();
    let usage = "{\"model\":\"m-1\",\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":7}}";
    let origin = Origin::start(Some(&keys.certificates), move |_| ok("application/json", usage)).await;
    let keys_of_egress = ", connections_per_minute: 1000, budget: { run: { requests: 50 } }";
    let daemon = keys.daemon(&[door(origin.port)], keys_of_egress).await;
    let request = v1::CreateRunRequest { image: dev_image(), ..requests::managed("out") };
    let mut run = daemon.run_on(request).await;
    run.ok(calls::write("race.py", RACE)).await;
    let (code, said) = shell(&mut run, "timeout 120 python3 race.py").await;
    let counts: Vec<(u16, u32)> = said
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(status, count)| (status.parse().unwrap(), count.parse().unwrap()))
        .collect();
    assert_eq!((code, counts[0]), (Some(0), (200, 50)), "{said}");
    // A program may be told to ask again while others are under way.
    assert!(counts[1..].iter().all(|(status, _)| [403, 429].contains(status)), "{said}");
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<u32>(), 200, "{said}");
    let (_, said) = shell(&mut run, "curl -sS -w ' %{http_code}' -d x http://model.example.org/v1/a").await;
    assert!(said.ends_with(" 403"), "{said}");
    assert_eq!(origin.requests().len(), 50);
    let refused = details(&mut run, "egress_refused", 1).await;
    assert!(refused.iter().any(|refused| refused.to_string().contains("requests")), "{refused:?}");
}
