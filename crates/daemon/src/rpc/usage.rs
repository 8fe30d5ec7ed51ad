//! Serves `UsageService`.

use std::cmp::Reverse;
use std::sync::Arc;

use egress_rules::Budget;
use identity::{Principal, Role, RunId};
use model_usage::{BoundUse, By, Day, KEPT_DAYS, Ledger, Report, Scope, Unit, Usage, Who};
use operations::Reason;
use refusal::{Refusal, chain};
use runs::Runs;
use runs::record::Record;
use timestamp::Timestamp;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::budget_bound;
use wire::v1::get_usage_request::GroupBy;
use wire::v1::usage_service_server::UsageService;

use super::{portion, principal};

pub(crate) struct Service {
    pub(crate) runs: Arc<Runs>,
}

#[tonic::async_trait]
impl UsageService for Service {
    async fn get_usage(
        &self,
        request: Request<v1::GetUsageRequest>,
    ) -> Result<Response<v1::GetUsageResponse>, Status> {
        let principal = principal(&request)?;
        let asked = request.into_inner();
        let response = if asked.run_id.is_empty() {
            self.of_days(&principal, &asked).await?
        } else {
            self.of_one_run(&principal, &asked)?
        };
        portion::answer(response)
    }
}

impl Service {
    fn of_one_run(
        &self,
        principal: &Principal,
        asked: &v1::GetUsageRequest,
    ) -> Result<v1::GetUsageResponse, Refusal> {
        let record = self.runs.shown_to(RunId::parse(&asked.run_id)?, principal)?;
        let is_by_model = matches!(asked.group_by(), GroupBy::Unspecified | GroupBy::Model);
        if asked.days != 0 || !asked.principal.is_empty() || !is_by_model {
            let message = "is for the whole life of the run by model: leave out days, principal and group_by, or run_id";
            return Err(Refusal::invalid("run_id", message));
        }
        let report = ledger(&self.runs).report_of_run(&asked.run_id);
        let bounds = bounds(&self.runs, &record).unwrap_or_default();
        Ok(v1::GetUsageResponse { bounds, ..to_wire(report) })
    }

    async fn of_days(
        &self,
        principal: &Principal,
        asked: &v1::GetUsageRequest,
    ) -> Result<v1::GetUsageResponse, Refusal> {
        let whose = whose(principal, &asked.principal)?;
        if asked.days > KEPT_DAYS {
            return Err(Refusal::invalid("days", format!("must be at most {KEPT_DAYS}")));
        }
        let by = match asked.group_by() {
            GroupBy::Unspecified | GroupBy::Model => By::Model,
            GroupBy::Principal => By::Principal,
            GroupBy::Day => By::Day,
        };
        let today = Day::of(Timestamp::now());
        let days = (today.before(asked.days.max(1) - 1), today);
        let ledger = ledger(&self.runs).clone();
        let read = tokio::task::spawn_blocking(move || ledger.report_of_days(days, whose.as_deref(), by));
        let read = read.await.map_err(|error| Refusal::internal("reading the use of models", &error))?;
        let report = read.map_err(|error| Refusal::internal("reading the use of models", &chain(&error)))?;
        Ok(to_wire(report))
    }
}

/// Returns the principal whose use is shown; `None` for that of all.
fn whose(principal: &Principal, asked: &str) -> Result<Option<String>, Refusal> {
    if !principal.may_use(&principal.name) {
        let message = "run_id: the token is limited to runs or profiles, so it shows the use of one run only";
        return Err(Refusal::new(Reason::PermissionDenied, message));
    }
    let sees_all = principal.roles.has_any(&[Role::Operator, Role::Auditor]);
    match asked {
        "" if sees_all => Ok(None),
        "" => Ok(Some(principal.name.clone())),
        _ if sees_all || asked == principal.name => Ok(Some(asked.to_owned())),
        _ => {
            let message = "principal: only operators and auditors see the use of others";
            Err(Refusal::new(Reason::PermissionDenied, message))
        }
    }
}

/// Returns the use of models by a run; `None` if its requests to models are not counted, or it has ended and made none.
pub(super) fn of_run(runs: &Runs, record: &Record) -> Option<v1::ModelUse> {
    let bounds = bounds(runs, record);
    let total = ledger(runs).of_run(&record.id.to_string());
    (bounds.is_some() || total.requests > 0)
        .then(|| v1::ModelUse { total: Some(counts(&total)), bounds: bounds.unwrap_or_default() })
}

/// Returns the bounds of a run's budget; `None` if it does not live or its requests to models are not counted.
fn bounds(runs: &Runs, record: &Record) -> Option<Vec<v1::BudgetBound>> {
    let rules = runs.living_run(record.id).ok()?.egress()?.rules();
    let budget: Budget = rules.is_metered().then(|| rules.budget())?;
    let who = Who { run: record.id.to_string(), principal: record.spec.principal.clone() };
    let bounds = ledger(runs).bounds(&who, &budget, Timestamp::now());
    Some(bounds.into_iter().map(bound).collect())
}

fn ledger(runs: &Runs) -> &Arc<Ledger> {
    &runs.launcher.way_out.outside.shared().ledger
}

fn to_wire(report: Report) -> v1::GetUsageResponse {
    let mut groups: Vec<_> = report.groups.into_iter().collect();
    groups.sort_by_key(|(_, usage)| Reverse((usage.tokens.total(), usage.requests)));
    let group = |(name, usage): (String, Usage)| v1::ModelUseGroup { name, counts: Some(counts(&usage)) };
    v1::GetUsageResponse {
        total: Some(counts(&report.total)),
        groups: groups.into_iter().map(group).collect(),
        bounds: Vec::new(),
    }
}

fn counts(usage: &Usage) -> v1::ModelCounts {
    v1::ModelCounts {
        requests: usage.requests,
        unreported_requests: usage.unreported,
        input_tokens: usage.tokens.input,
        output_tokens: usage.tokens.output,
        cached_input_tokens: usage.tokens.cached_input,
        cache_write_tokens: usage.tokens.cache_write,
        cost_micro_usd: usage.micro_usd,
        unpriced_tokens: usage.unpriced.total(),
    }
}

fn bound(bound: BoundUse) -> v1::BudgetBound {
    let scope = match bound.scope {
        Scope::Run => budget_bound::Scope::Run,
        Scope::PrincipalDay => budget_bound::Scope::PrincipalDay,
        Scope::Day => budget_bound::Scope::Day,
    };
    let unit = match bound.unit {
        Unit::Tokens => budget_bound::Unit::Tokens,
        Unit::Requests => budget_bound::Unit::Requests,
        Unit::Usd => budget_bound::Unit::MicroUsd,
    };
    v1::BudgetBound {
        scope: scope.into(),
        unit: unit.into(),
        used: bound.used,
        limit: bound.limit,
        renews_at: bound.until.map(|day| day.begin().to_wire()),
    }
}

#[cfg(test)]
mod tests {
    use identity::{Roles, Scope as TokenScope};

    use super::*;

    fn caller(roles: &[Role]) -> Principal {
        let roles = roles.iter().fold(Roles::none(), |roles, role| roles.with(*role));
        Principal { name: "uid:1000".to_owned(), roles, ..Principal::anonymous() }
    }

    #[test]
    fn operators_and_auditors_see_the_use_of_all_and_others_their_own() {
        for role in [Role::Operator, Role::Auditor] {
            assert_eq!(whose(&caller(&[role]), "").unwrap(), None);
            assert_eq!(whose(&caller(&[role]), "uid:7").unwrap().as_deref(), Some("uid:7"));
        }
        for role in [Role::Orchestrator, Role::Approver, Role::Director] {
            assert_eq!(whose(&caller(&[role]), "").unwrap().as_deref(), Some("uid:1000"));
            assert_eq!(whose(&caller(&[role]), "uid:1000").unwrap().as_deref(), Some("uid:1000"));
            assert_eq!(whose(&caller(&[role]), "uid:7").unwrap_err().reason, Reason::PermissionDenied);
        }
        let scope = TokenScope { runs: Vec::new(), profiles: vec!["build".to_owned()] };
        let narrow = Principal { scope: Some(Arc::new(scope)), ..caller(&[Role::Operator]) };
        assert_eq!(whose(&narrow, "").unwrap_err().reason, Reason::PermissionDenied);
    }

    #[test]
    fn groups_are_ordered_by_their_tokens() {
        let usage = |requests, output| Usage {
            requests,
            tokens: model_usage::Tokens { output, ..Default::default() },
            ..Usage::default()
        };
        let groups = [("a", usage(1, 5)), ("b", usage(9, 7)), ("c", usage(2, 5))];
        let groups = groups.map(|(name, usage)| (name.to_owned(), usage)).into();
        let answer = to_wire(Report { total: usage(12, 17), groups });
        let names: Vec<_> = answer.groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["b", "c", "a"]);
        assert_eq!(answer.total.unwrap().output_tokens, 17);
    }
}
