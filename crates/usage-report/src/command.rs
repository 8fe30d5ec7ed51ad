//! `coffer usage`.

use clap::{Args, ValueEnum};
use command_context::client::{Context, quick};
use command_context::run_ref::RunRef;
use presentation::failure::Ended;
use presentation::output::Output;
use presentation::time;
use wire::v1::budget_bound::Unit;
use wire::v1::get_usage_request::GroupBy;
use wire::v1::{BudgetBound, GetUsageRequest, GetUsageResponse, ModelCounts};

use crate::amount::{dollars, gaps};
use crate::of_run::whose;

/// Show what runs have used of models: requests, tokens and cost.
///
/// Rules with `meter` count it. Operators and auditors see the use of all principals, others their own. Days are those of
/// UTC. The requests of a model are those whose response is over.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer usage --days 7 --by principal")]
pub struct Usage {
    /// Only this run, for its whole life, with the bounds of its budget: its id, a unique beginning or end of it, or `-`
    /// for $COFFERDAM_RUN.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["days", "by", "principal"])]
    run: Option<RunRef>,
    /// Number of days, today's included; at most 400.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=400))]
    days: u32,
    /// Property by which the use is divided.
    #[arg(long, value_name = "PROPERTY", default_value = "model")]
    by: By,
    /// Only the runs of this principal, such as `uid:1000`.
    #[arg(long, value_name = "PRINCIPAL", default_value = "", hide_default_value = true)]
    principal: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    Model,
    Principal,
    Day,
}

impl By {
    fn to_wire(self) -> GroupBy {
        match self {
            Self::Model => GroupBy::Model,
            Self::Principal => GroupBy::Principal,
            Self::Day => GroupBy::Day,
        }
    }

    fn heading(self) -> &'static str {
        match self {
            Self::Model => "MODEL",
            Self::Principal => "PRINCIPAL",
            Self::Day => "DAY",
        }
    }
}

impl Usage {
    pub async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(self.run.as_ref()).await?;
        let request = if run_id.is_empty() {
            let group_by = self.by.to_wire().into();
            GetUsageRequest { run_id, days: self.days, group_by, principal: self.principal }
        } else {
            GetUsageRequest { run_id, ..GetUsageRequest::default() }
        };
        let response = client.usage().get_usage(quick(request)).await?.into_inner();
        context.ui.answer_and_talk(response, |response, page, talk| {
            render(&response, self.by, page);
            if response.total.unwrap_or_default().requests == 0 {
                talk.own(
                    "no request to a model was counted: rules of a profile count them with `meter: tokens`\n",
                );
            }
            for gap in gaps(&response.total.unwrap_or_default()) {
                talk.word(&gap).end_line();
            }
        })
    }
}

fn render(response: &GetUsageResponse, by: By, page: &mut Output) {
    let total = response.total.unwrap_or_default();
    if total.requests > 0 {
        let groups = response.groups.iter().map(|group| row(&group.name, &group.counts.unwrap_or_default()));
        let header = [by.heading(), "REQUESTS", "INPUT", "CACHED", "TO CACHE", "OUTPUT", "US DOLLARS"];
        page.table(&header, groups.chain([row("all", &total)]));
    }
    if !response.bounds.is_empty() {
        if total.requests > 0 {
            page.own("\n");
        }
        page.table(&["BUDGET", "OF", "USED", "LIMIT", "RENEWS AT"], response.bounds.iter().map(bound));
    }
}

fn row(name: &str, counts: &ModelCounts) -> Vec<String> {
    let numbers = [
        counts.requests,
        counts.input_tokens,
        counts.cached_input_tokens,
        counts.cache_write_tokens,
        counts.output_tokens,
    ];
    let numbers = numbers.map(|number| number.to_string());
    let cost = match (counts.cost_micro_usd, counts.unpriced_tokens) {
        (0, 1..) => "?".to_owned(),
        (cost, 0) => dollars(cost),
        (cost, _) => format!("{} and more", dollars(cost)),
    };
    [vec![name.to_owned()], numbers.to_vec(), vec![cost]].concat()
}

fn bound(bound: &BudgetBound) -> Vec<String> {
    let (unit, amount): (_, fn(u64) -> String) = match bound.unit() {
        Unit::MicroUsd => ("US dollars", dollars),
        Unit::Requests => ("requests", |amount| amount.to_string()),
        Unit::Tokens | Unit::Unspecified => ("tokens", |amount| amount.to_string()),
    };
    vec![
        whose(bound.scope()).to_owned(),
        unit.to_owned(),
        amount(bound.used),
        amount(bound.limit),
        time::moment(bound.renews_at.as_ref()),
    ]
}

#[cfg(test)]
mod tests {
    use presentation::output::Look;
    use wire::v1::ModelUseGroup;
    use wire::v1::budget_bound::Scope;

    use super::*;

    fn counts(requests: u64, tokens: u64, cost: u64, unpriced: u64) -> ModelCounts {
        ModelCounts {
            requests,
            input_tokens: tokens,
            output_tokens: 5,
            cost_micro_usd: cost,
            unpriced_tokens: unpriced,
            ..ModelCounts::default()
        }
    }

    #[test]
    fn a_line_a_model_and_one_for_all() {
        let group = |name: &str, counts| ModelUseGroup { name: name.into(), counts: Some(counts) };
        let groups = vec![group("large\x1b", counts(2, 900, 2_750, 0)), group("new", counts(1, 40, 0, 45))];
        let total = Some(counts(3, 940, 2_750, 45));
        let run = BudgetBound {
            scope: Scope::Run.into(),
            unit: Unit::MicroUsd.into(),
            used: 2_750,
            limit: 5_000_000,
            renews_at: None,
        };
        let mut page = Output::new(Look::PIPE);
        render(&GetUsageResponse { total, groups, bounds: vec![run] }, By::Model, &mut page);
        assert_eq!(
            page.as_str(),
            "MODEL   REQUESTS  INPUT  CACHED  TO CACHE  OUTPUT  US DOLLARS\n\
             large␛  2         900    0       0         5       0.00275\n\
             new     1         40     0       0         5       ?\n\
             all     3         940    0       0         5       0.00275 and more\n\
             \n\
             BUDGET       OF          USED     LIMIT  RENEWS AT\n\
             for the run  US dollars  0.00275  5.00   -\n"
        );
    }

    #[test]
    fn nothing_is_printed_about_no_use() {
        let mut page = Output::new(Look::PIPE);
        render(&GetUsageResponse::default(), By::Day, &mut page);
        assert_eq!(page.as_str(), "");
    }
}
