//! Refusals of the gateway, in the terms of the API.

use refusal::Refusal;

/// Returns the refusal that a client gets for a call that the gateway does not let through.
pub fn refusal(refused: gateway::Refusal) -> Refusal {
    let refusal = Refusal::new(refused.reason, refused.message).with("rule", refused.rule);
    match refused.retry_after {
        Some(after) => refusal.retry_after(after),
        None => refusal,
    }
}
