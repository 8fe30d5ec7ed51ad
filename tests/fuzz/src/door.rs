//! A gateway with the built-in policy, asked as an agent that may do everything.

use std::sync::Arc;

use gateway::{Admission, Gateway};
use operations::Operation;
use policy::{Caller, Policy, RunScope};
use timestamp::SystemClock;

/// With the built-in policy.
pub fn gateway() -> Gateway {
    Gateway::new(Policy::builtin().expect("the built-in policy"), Arc::new(SystemClock))
}

/// What the gateway says to one operation under a profile.
pub fn admit(gateway: &Gateway, profile: &str, operation: Operation) -> Admission {
    let run = RunScope { profile: profile.into(), image_id: "sha256:0".into() };
    let caller = Caller {
        principal: "uid:1000".into(),
        agent_id: "agent".into(),
        role: "director".into(),
        run_id: "run".into(),
    };
    gateway.admit(&gateway.policy(), &run, &caller, "call", operation)
}
