//! Public libraries that guard programs against requests to private addresses, and the addresses that names have within a run.

use std::net::Ipv4Addr;

use egress_rules::Pool;

use super::{world, written};
use crate::egress::world::CA;

/// Asks the guards: `guards.mjs URL ADDRESS…`. Each has to accept the addresses, and to refuse a private one. The last two make a
/// request to the URL.
const GUARDS: &str = r#"
import https from "node:https";

import ip from "ip";
import ipaddr from "ipaddr.js";
import isPrivate from "private-ip";
import { useAgent } from "request-filtering-agent";
import filteringAgent from "ssrf-req-filter";

const [url, ...addresses] = process.argv.slice(2);
const PRIVATE = "10.1.2.3";

const judges = {
    ip: (address) => ip.isPublic(address),
    "ipaddr.js": (address) => ipaddr.parse(address).range() === "unicast",
    "private-ip": (address) => isPrivate(address) === false,
};
for (const [name, accepts] of Object.entries(judges)) {
    const refused = addresses.filter((address) => !accepts(address));
    if (refused.length > 0 || accepts(PRIVATE)) {
        throw new Error(`${name} refuses ${refused.join(", ") || "nothing"}`);
    }
    console.log(name);
}

function get(to, agent) {
    return new Promise((resolve, reject) => {
        const request = https.get(to, { agent, timeout: 30_000 }, (response) => {
            response.resume();
            resolve(response.statusCode);
        });
        request.on("timeout", () => request.destroy(new Error("it took too long")));
        request.on("error", reject);
    });
}

for (const [name, agentFor] of Object.entries({ "request-filtering-agent": useAgent, "ssrf-req-filter": filteringAgent })) {
    const status = await get(url, agentFor(url));
    const to = `https://${PRIVATE}/`;
    const refusal = await get(to, agentFor(to)).catch((error) => error.message);
    if (status !== 200 || !/not allowed|blocked/.test(refusal)) {
        throw new Error(`${name}: ${status}, ${refusal}`);
    }
    console.log(name);
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn n111_public_guards_accept_the_addresses_of_names_and_make_their_requests() {
    let mut world = world().await;
    let said = world.says("getent hosts files.example.org | cut -d' ' -f1").await;
    let name: Ipv4Addr = said.trim().parse().unwrap();
    let block = Pool::DEFAULT_BLOCK;
    assert!(block.contains(&name), "{name}");
    let (first, last) = (block.network(), block.broadcast());
    let middle = Ipv4Addr::from(u32::midpoint(first.into(), last.into()));
    let script = format!(
        "ln -s /usr/local/lib/sites/node_modules node_modules\n{}\
         NODE_EXTRA_CA_CERTS={CA} node guards.mjs {}/hello {name} {first} {middle} {last}",
        written("guards.mjs", GUARDS),
        world.url()
    );
    let guards = "ip\nipaddr.js\nprivate-ip\nrequest-filtering-agent\nssrf-req-filter\n";
    assert_eq!(world.says(&script).await, guards);
    assert_eq!(world.site.requests(), ["GET /hello"; 2], "the agents made their requests");
}
