//! The table of runs, and the same as JSON.

use std::fmt;

use serde_json::{Value, json};

use super::burst::Burst;
use super::costs::Costs;
use super::curve::Point;
use super::lives::{LeftOut, Lives, STEPS};
use super::refill::{Beside, KINDS};
use super::trace::Replayed;
use crate::host::Host;
use crate::report::{mib, time};
use crate::sample::Sample;
use crate::verdict::Ratios;

/// Everything that was measured.
pub(crate) struct Report {
    pub(crate) began: Host,
    pub(crate) ended: Host,
    pub(crate) date: String,
    pub(crate) engine: String,
    /// The daemon can keep containers ready.
    pub(crate) has_pool: bool,
    pub(crate) lives: Vec<Lives>,
    pub(crate) left_out: LeftOut,
    pub(crate) bursts: Vec<Burst>,
    /// Calls beside a pool that is filled again.
    pub(crate) beside: Option<Beside>,
    pub(crate) trace: Replayed,
    pub(crate) costs: Option<Costs>,
    pub(crate) curve: Vec<Point>,
    pub(crate) ratios: Ratios,
}

impl Report {
    pub(crate) fn machine(&self) -> String {
        let Host { processor, processors, kernel, load } = &self.began;
        format!(
            "{}, {processors} × {processor}, Linux {kernel}, engine {}, load average {load}",
            self.date, self.engine
        )
    }

    pub(crate) fn costs_json(&self) -> Option<Value> {
        self.costs.as_ref().map(|costs| costs.json(&self.engine, &self.began.kernel))
    }

    pub(crate) fn json(&self) -> String {
        let lives = self.lives.iter().map(|lives| {
            let steps =
                STEPS.iter().zip(&lives.steps).map(|((step, _), sample)| ((*step).to_owned(), times(sample)));
            (lives.name.to_owned(), Value::Object(steps.collect()))
        });
        let left_out = self.left_out.iter().map(|(name, why)| ((*name).to_owned(), json!(why)));
        let bursts = self.bursts.iter().map(|burst| {
            let Burst { name, asked, failed, warm, took, each, ended } = burst;
            json!({
                "of": name, "asked": asked, "failed": failed, "warm": warm, "took_us": took.as_micros(), "ready": times(each),
                "ended_us": ended.as_micros(),
            })
        });
        let beside = self.beside.as_ref().map(|Beside { idle, refill, made, warm }| {
            let kinds = KINDS.iter().zip(idle.iter().zip(refill)).map(|(kind, (idle, refill))| {
                ((*kind).to_owned(), json!({ "idle": times(idle), "refill": times(refill) }))
            });
            json!({ "calls": Value::Object(kinds.collect()), "made": made, "warm": warm })
        });
        let curve = self.curve.iter().map(|point| {
            json!({
                "work": point.work, "runs": point.runs, "clients": point.clients, "a_second": point.rate().round(),
                "latency": times(&point.sample),
            })
        });
        let by_operation = self.trace.by_operation.iter().map(|(name, sample)| (name.clone(), times(sample)));
        let resident = self.costs.as_ref().map(|costs| {
            let [few, many] = [&costs.few, &costs.many]
                .map(|look| json!({ "runs": look.runs, "resident_bytes": look.resident }));
            json!([few, many, { "runs": 0, "resident_bytes": costs.ended }])
        });
        let report = json!({
            "date": self.date,
            "engine": self.engine,
            "host": { "before": self.began.json(), "after": self.ended.json() },
            "lives": Value::Object(lives.collect()),
            "left_out": Value::Object(left_out.collect()),
            "bursts": bursts.collect::<Vec<_>>(),
            "beside_a_refill": beside,
            "trace": {
                "calls": self.trace.calls, "took_us": self.trace.took.as_micros(),
                "operations": Value::Object(by_operation.collect()), "engine_exec_of_true": times(&self.trace.exec),
            },
            "daemon": resident,
            "costs": self.costs_json(),
            "curve": curve.collect::<Vec<_>>(),
            "ratios": self.ratios,
        });
        format!("{report:#}\n")
    }
}

fn times(sample: &Sample) -> Value {
    json!({
        "count": sample.len(), "least_us": sample.least().as_micros(), "median_us": sample.median().as_micros(),
        "p99_us": sample.p99().as_micros(),
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}", self.machine())?;
        writeln!(f, "load average {} after (this benchmark included)", self.ended.load)?;
        self.lives_lines(f)?;
        self.burst_lines(f)?;
        self.refill_lines(f)?;
        self.trace_lines(f)?;
        self.cost_lines(f)?;
        self.curve_lines(f)?;
        writeln!(f, "\n{:50} {:>10}", "ratios", "measured")?;
        self.ratios.iter().try_for_each(|(name, ratio)| writeln!(f, "  {name:48} {ratio:>10.3}"))
    }
}

impl Report {
    fn lives_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{:24} {:>8}", "lives", "times")?;
        STEPS.iter().try_for_each(|(step, _)| write!(f, " {step:>10}"))?;
        writeln!(f)?;
        for Lives { name, steps } in &self.lives {
            write!(f, "  {name:22} {:>8}", steps[0].len())?;
            steps.iter().try_for_each(|sample| write!(f, " {:>10}", time(sample.median())))?;
            write!(f, "\n  {:22} {:>8}", "", "p99")?;
            steps.iter().try_for_each(|sample| write!(f, " {:>10}", time(sample.p99())))?;
            writeln!(f)?;
        }
        self.left_out.iter().try_for_each(|(name, why)| writeln!(f, "  {name:22} {why}"))
    }

    fn refill_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Beside { idle, refill, made, warm }) = &self.beside else { return Ok(()) };
        writeln!(f, "\n{:24} {:>10} {:>10} {:>8}", "calls beside a refill", "median", "p99", "ratio")?;
        for (kind, (idle, refill)) in KINDS.iter().zip(idle.iter().zip(refill)) {
            writeln!(f, "  {kind:22} {:>10} {:>10}", time(idle.median()), time(idle.p99()))?;
            let ratio = refill.p99().as_secs_f64() / idle.p99().as_secs_f64();
            let (median, p99) = (time(refill.median()), time(refill.p99()));
            writeln!(f, "  {:22} {median:>10} {p99:>10} {ratio:>8.2}", "beside a refill")?;
        }
        writeln!(f, "  {made} runs were made meanwhile, {warm} of them warm")
    }

    fn burst_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bursts.is_empty() {
            return Ok(());
        }
        let head = ["asked", "failed", "warm", "median", "p99", "all ready", "all ended"];
        write!(f, "\n{:24}", "bursts")?;
        head.iter().try_for_each(|word| write!(f, " {word:>9}"))?;
        writeln!(f)?;
        for Burst { name, asked, failed, warm, took, each, ended } in &self.bursts {
            let times = [each.median(), each.p99(), *took, *ended].map(time);
            write!(f, "  {name:22} {asked:>9} {failed:>9} {warm:>9}")?;
            times.iter().try_for_each(|time| write!(f, " {time:>9}"))?;
            writeln!(f)?;
        }
        Ok(())
    }

    fn trace_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Replayed { calls, took, exec, by_operation } = &self.trace;
        writeln!(f, "\n{:24} {:>8} {:>10} {:>10}", "trace", "calls", "median", "p99")?;
        for (name, sample) in by_operation {
            let (median, p99) = (time(sample.median()), time(sample.p99()));
            writeln!(f, "  {name:22} {:>8} {median:>10} {p99:>10}", sample.len())?;
        }
        writeln!(f, "  {:22} {calls:>8} {:>10}", "all of them", time(*took))?;
        let (median, p99) = (time(exec.median()), time(exec.p99()));
        writeln!(f, "  {:22} {:>8} {median:>10} {p99:>10}", "engine's exec of true", exec.len())
    }

    fn cost_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(costs) = &self.costs else { return Ok(()) };
        writeln!(
            f,
            "\n{:24} {:>10} {:>10} {:>10} {:>10}",
            "an idle run", "memory", "cpu a s", "threads", "disk"
        )?;
        for (part, amounts) in costs.by_part() {
            let (memory, disk) = (mib(amounts.memory_bytes), mib(amounts.disk_bytes));
            writeln!(
                f,
                "  {part:22} {memory:>10} {:>7} µs {:>10} {disk:>10}",
                amounts.cpu_micros, amounts.pids
            )?;
        }
        for look in [&costs.few, &costs.many] {
            writeln!(f, "  cofferd with {:>3} runs: {} resident", look.runs, mib(look.resident))?;
        }
        writeln!(f, "  cofferd a minute after their end: {} resident", mib(costs.ended))?;
        Ok(())
    }

    fn curve_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.curve.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\n{:24} {:>5} {:>8} {:>10} {:>10} {:>10}",
            "curve", "runs", "clients", "a second", "median", "p99"
        )?;
        self.curve.iter().try_for_each(|point| {
            let (median, p99) = (time(point.sample.median()), time(point.sample.p99()));
            let Point { work, runs, clients, .. } = point;
            writeln!(f, "  {work:22} {runs:>5} {clients:>8} {:>10.0} {median:>10} {p99:>10}", point.rate())
        })
    }
}
