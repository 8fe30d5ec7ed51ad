//! The use of rate limits, for display.

use super::{Agent, Limits, Scope};
use policy::{Limit, Quota, RateLimits, Span};
use timestamp::UnixMillis;

/// One window of one scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub span: Span,
    /// Most calls in it.
    pub limit: Limit,
    /// Calls that count.
    pub used: u32,
    /// Time when one more call fits. `None` if one fits now.
    pub room_at: Option<UnixMillis>,
    /// Time when no call counts any longer, if no other comes. `None` if none counts now.
    pub empty_at: Option<UnixMillis>,
}

/// The windows of one scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    pub scope: Scope,
    /// Shortest first.
    pub windows: [Window; 3],
}

impl Limits {
    /// Returns the use of a scope, compared with `quota`.
    pub fn usage(&self, scope: Scope, quota: &Quota) -> Usage {
        let (now, wall) = (self.moment(), self.clock.now());
        let used = self.table.look(scope.key(), now, |counter| counter.used(|span| quota.of(span)));
        let at = |moment: u64| UnixMillis(wall.0.saturating_add(moment.saturating_sub(now)));
        let mut windows = Span::ALL.map(|span| Window {
            span,
            limit: quota.of(span),
            used: 0,
            room_at: None,
            empty_at: None,
        });
        for (window, (count, room, empty)) in windows.iter_mut().zip(used) {
            window.used = count;
            window.room_at = room.map(at);
            window.empty_at = empty.map(at);
        }
        Usage { scope, windows }
    }

    /// Returns the use of all scopes that count the calls of an agent in a run.
    ///
    /// First come operations that were used or have a limit in the policy, then the run, the principal and a throttle.
    pub fn usages(
        &self,
        limits: &RateLimits,
        principal: &str,
        agent_id: &str,
        run_id: Option<&str>,
    ) -> Vec<Usage> {
        let operation = |name: &str| Scope::Operation {
            principal: principal.to_owned(),
            agent_id: agent_id.to_owned(),
            operation: name.to_owned(),
        };
        let servers = limits.operations.keys().map(String::as_str).filter(|name| name.starts_with("mcp."));
        let mut usages: Vec<Usage> = operations::Operation::NAMES
            .into_iter()
            .chain(servers)
            .map(|name| self.usage(operation(name), &limits.operation(name).1))
            .filter(|usage| {
                let Scope::Operation { operation, .. } = &usage.scope else { return true };
                usage.windows.iter().any(|window| window.used > 0)
                    || limits.operations.contains_key(operation.as_str())
            })
            .collect();
        usages.extend(run_id.map(|run| self.usage(Scope::Run(run.to_owned()), &limits.run)));
        usages.push(self.usage(Scope::Principal(principal.to_owned()), &limits.principal));
        let throttled = self.throttles.of(principal, agent_id, self.moment());
        usages.extend(throttled.map(|throttle| {
            let minute = Limit::Calls(throttle.per_minute);
            let quota = Quota { minute, ..throttle.quota() };
            let agent = Agent { principal: principal.to_owned(), id: agent_id.to_owned() };
            self.usage(Scope::Throttled(agent), &quota)
        }));
        usages
    }
}
