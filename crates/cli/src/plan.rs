//! `coffer plan`: how many runs a host holds, and how many hosts a number of runs needs.

use std::path::PathBuf;

use capacity::{Amounts, CORE, Costs, Fit, Host, Measured, Resource, this_host, within};
use clap::Args;
use policy::Policy;
use serde::Serialize;
use wire::v1::GetPolicyRequest;

use crate::client::{Context, quick};
use crate::failure::{Ended, Failure};
use crate::output::Output;
use crate::quantity;

const MIB: u64 = 1 << 20;
/// Default of `limits.runs` in the daemon's configuration.
const RUNS_OF_A_DAEMON: u64 = 256;

/// Estimate how many runs fit on a host, and how many hosts a number of runs needs.
///
/// An idle run takes what Cofferdam and the engine need for it. A busy run uses up its profile's limits. Real runs are between the
/// two. The costs of a run are measured: --costs takes a measurement of your own.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer plan --runs 1000 --profile build --cores 64 --memory 256G")]
pub(crate) struct Plan {
    /// How many runs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// The policy profile of the runs, which the daemon knows.
    #[arg(long, value_name = "PROFILE")]
    profile: String,
    /// Cores of a host. Default: this host's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    cores: Option<u64>,
    /// Memory of a host that runs may use, such as 256G. Default: all of this host's.
    #[arg(long, value_name = "SIZE", value_parser = quantity::parse_bytes)]
    memory: Option<u64>,
    /// Processes and threads of a host. Default: as many as this host's kernel makes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pids: Option<u64>,
    /// Disk of a host for the daemon's and the engine's files, such as 2T. Default: not counted.
    #[arg(long, value_name = "SIZE", value_parser = quantity::parse_bytes)]
    disk: Option<u64>,
    /// Costs of a run, as `tests/bench.sh --lane runs --costs FILE` writes them. Default: built in.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report<'r> {
    profile: &'r str,
    runs: u64,
    host: Host,
    idle: Load,
    busy: Load,
    costs: &'r Costs,
}

/// Result for idle runs, or for busy runs.
#[derive(Serialize)]
struct Load {
    #[serde(flatten)]
    fit: Fit,
    /// Number of hosts for all runs. `None` if not even one run fits on a host.
    hosts: Option<u64>,
}

impl Plan {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let costs = self.costs.as_deref().map_or_else(Costs::built_in, Costs::read);
        let costs = costs.map_err(|error| Failure::usage(error.to_string()))?;
        let host = self.host()?;
        let client = context.connect().await?;
        let policy = client.policy().get_policy(quick(GetPolicyRequest {})).await?.into_inner();
        let limits = limits(&policy.yaml, &self.profile)?;
        context.ui.answer_and_talk(self.report(host, limits, &costs), |report, page, talk| {
            render(&report, page);
            notes(&report, talk);
        })
    }

    fn host(&self) -> Result<Host, Failure> {
        let unknown = |what, option| {
            Failure::usage(format!("the {what} of this host cannot be determined: use {option}"))
        };
        Ok(Host {
            memory_bytes: self
                .memory
                .or_else(this_host::memory)
                .ok_or_else(|| unknown("memory", "--memory"))?,
            cores: self.cores.or_else(this_host::cores).ok_or_else(|| unknown("cores", "--cores"))?,
            pids: self.pids.or_else(this_host::pids),
            disk_bytes: self.disk,
        })
    }

    fn report<'r>(&'r self, host: Host, limits: Amounts, costs: &'r Costs) -> Report<'r> {
        let load = |run| {
            let fit = Fit::of(&host, &costs.base, run);
            Load { fit, hosts: fit.hosts(self.runs) }
        };
        let busy = load(host.bounded(costs.run.busy(limits)));
        Report { profile: &self.profile, runs: self.runs, host, idle: load(costs.run.idle()), busy, costs }
    }
}

/// Returns the resources that a profile of this policy allows a run.
fn limits(policy: &str, profile: &str) -> Result<Amounts, Failure> {
    let policy = Policy::from_part("policy", policy).map_err(|problems| {
        Failure::failed(format!(
            "this coffer cannot read the daemon's policy; both must be of the same release: {problems}"
        ))
    })?;
    let Some(found) = policy.profile(profile) else {
        let names = policy.profile_names().collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(format!("no profile `{profile}`; there are: {names}")));
    };
    let limits = &found.limits;
    Ok(Amounts {
        memory_bytes: limits.memory_mib.saturating_mul(MIB),
        cpu_micros: limits.cpu_millis.saturating_mul(CORE / 1_000),
        pids: limits.pids,
        disk_bytes: limits.disk_mib.saturating_mul(MIB),
    })
}

fn render(report: &Report<'_>, page: &mut Output) {
    let Report { host, idle, busy, costs, .. } = report;
    let rows = Resource::ALL.map(|resource| {
        let held = |load: &Load| {
            let fits = within(host, &costs.base, &load.fit.run, resource);
            [amount(resource, load.fit.run.of(resource)), number(fits)]
        };
        let has = host.of(resource).map_or_else(|| "not counted".to_owned(), |all| amount(resource, all));
        let ([idle, idle_runs], [busy, busy_runs]) = (held(idle), held(busy));
        vec![resource.name().to_owned(), has, idle, idle_runs, busy, busy_runs]
    });
    page.table(&["RESOURCE", "HOST", "IDLE RUN", "FIT", "BUSY RUN", "FIT"], rows);
    let facts = [
        ("idle", told(idle, report.runs)),
        ("busy", told(busy, report.runs)),
        ("costs", measured(&costs.measured)),
    ];
    page.own("\n").facts(&facts);
}

/// Describes a result, such as `5 runs on a host, where memory binds; 1000 runs need 200 hosts`.
fn told(load: &Load, asked: u64) -> String {
    let asked = quantity::count(asked, "run needs", "runs need");
    let (Some(runs), Some(binds)) = (load.fit.runs, load.fit.binds) else {
        return format!("no resource limits them; {asked} 1 host");
    };
    let hosts =
        load.hosts.map_or_else(|| "larger hosts".to_owned(), |hosts| quantity::count(hosts, "host", "hosts"));
    format!(
        "{} on a host, limited by its {}; {asked} {hosts}",
        quantity::count(runs, "run", "runs"),
        binds.name()
    )
}

fn measured(measured: &Measured) -> String {
    let Measured { date, cofferd, engine, kernel, image, runs } = measured;
    format!(
        "measured {date} with {runs} idle runs of {image}: cofferd {cofferd}, engine {engine}, Linux {kernel}"
    )
}

fn notes(report: &Report<'_>, talk: &mut Output) {
    let runs = report.idle.fit.runs.unwrap_or(u64::MAX).min(report.runs);
    if runs > RUNS_OF_A_DAEMON {
        talk.own(
            "`limits.runs` of the daemon's configuration also limits the runs of a host; its default is ",
        )
        .word(&RUNS_OF_A_DAEMON.to_string())
        .own(".")
        .end_line();
    }
}

fn amount(resource: Resource, amount: u64) -> String {
    match resource {
        Resource::Memory | Resource::Disk => quantity::bytes(amount),
        Resource::Cpu => cores(amount),
        Resource::Pids => amount.to_string(),
    }
}

/// Formats a number of cores, such as `2 cores`, or `0.0004 cores` for an idle run.
fn cores(micros: u64) -> String {
    let parts = micros.div_ceil(100);
    let text = format!("{}.{:04}", parts / 10_000, parts % 10_000);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} {}", if text == "1" { "core" } else { "cores" })
}

fn number(fits: Option<u64>) -> String {
    fits.map_or_else(|| "-".to_owned(), |runs| runs.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    const GIB: u64 = 1 << 30;

    fn plan(runs: u64) -> Plan {
        let profile = "build".to_owned();
        Plan { runs, profile, cores: None, memory: None, pids: None, disk: None, costs: None }
    }

    fn costs() -> Costs {
        let part = |memory_bytes| Amounts { memory_bytes, cpu_micros: 25, pids: 3, disk_bytes: 1 << 10 };
        let measured = Measured {
            date: "2026-11-25".to_owned(),
            cofferd: "0.1.0".to_owned(),
            engine: "20.10.24".to_owned(),
            kernel: "6.1".to_owned(),
            image: "an image".to_owned(),
            runs: 100,
        };
        let run = capacity::Parts {
            cofferd: part(MIB),
            engine: part(MIB),
            shim: part(2 * MIB),
            container: part(MIB),
        };
        Costs { measured, base: Amounts { memory_bytes: GIB, pids: 100, ..Amounts::default() }, run }
    }

    fn shown(plan: &Plan, host: Host, limits: Amounts) -> String {
        let (mut page, costs) = (Output::new(Look::PIPE), costs());
        render(&plan.report(host, limits, &costs), &mut page);
        page.as_str().to_owned()
    }

    #[test]
    fn a_plan_shows_each_resource_and_the_scarcest() {
        let host = Host { memory_bytes: 65 * GIB, cores: 16, pids: Some(32_768), disk_bytes: None };
        let limits =
            Amounts { memory_bytes: 4 * GIB, cpu_micros: 4 * CORE, pids: 1_024, disk_bytes: 16 * GIB };
        assert_eq!(
            shown(&plan(1_000), host, limits),
            "\
RESOURCE  HOST         IDLE RUN      FIT     BUSY RUN      FIT
memory    65.0 GiB     5.0 MiB       13107   4.0 GiB       15
cpu       16 cores     0.0001 cores  160000  4.0001 cores  3
pids      32768        12            2722    1033          31
disk      not counted  4.0 KiB       -       16.0 GiB      -

idle   2722 runs on a host, limited by its pids; 1000 runs need 1 host
busy   3 runs on a host, limited by its cpu; 1000 runs need 334 hosts
costs  measured 2026-11-25 with 100 idle runs of an image: cofferd 0.1.0, engine 20.10.24, Linux 6.1
"
        );
    }

    #[test]
    fn a_host_without_capacity_for_a_run_is_reported() {
        let host = Host { memory_bytes: 2 * GIB, cores: 2, pids: None, disk_bytes: Some(0) };
        let limits = Amounts { memory_bytes: 4 * GIB, cpu_micros: 4 * CORE, pids: 1, disk_bytes: 1 };
        let shown = shown(&plan(1), host, limits);
        assert!(
            shown.contains("busy   0 runs on a host, limited by its memory; 1 run needs larger hosts\n"),
            "{shown}"
        );
        assert!(shown.contains("idle   0 runs on a host, limited by its disk"), "{shown}");
    }

    #[test]
    fn a_run_with_a_limit_of_more_cores_than_there_are_fits_once() {
        let host = Host { memory_bytes: 64 * GIB, cores: 2, pids: None, disk_bytes: None };
        let limits = Amounts { memory_bytes: GIB, cpu_micros: 4 * CORE, pids: 1, disk_bytes: 1 };
        let shown = shown(&plan(3), host, limits);
        assert!(
            shown.contains("busy   1 run on a host, limited by its cpu; 3 runs need 3 hosts\n"),
            "{shown}"
        );
    }

    #[test]
    fn limits_come_from_the_daemons_policy() {
        let policy = Policy::builtin().unwrap().to_yaml().unwrap();
        let build =
            Amounts { memory_bytes: 4 * GIB, cpu_micros: 4 * CORE, pids: 1_024, disk_bytes: 16 * GIB };
        assert_eq!(limits(&policy, "build").unwrap(), build);
        let unknown = limits(&policy, "biuld").unwrap_err().to_string();
        assert!(unknown.contains("no profile `biuld`; there are: build, "), "{unknown}");
        assert!(
            limits("profiles: 7", "build")
                .unwrap_err()
                .to_string()
                .contains("both must be of the same release")
        );
    }

    #[test]
    fn more_runs_than_one_daemon_holds_are_noted() {
        let host = Host { memory_bytes: 64 * GIB, cores: 64, pids: None, disk_bytes: None };
        let (costs, limits) = (costs(), Amounts::default());
        for (asked, noted) in [(256, false), (257, true)] {
            let (plan, mut talk) = (plan(asked), Output::new(Look::PIPE));
            notes(&plan.report(host, limits, &costs), &mut talk);
            assert_eq!(talk.as_str().contains("limits.runs"), noted, "{asked}");
        }
    }
}
