//! The table at the end, and the same as JSON.

mod goal;

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

pub(crate) use self::goal::{Goal, mib, time};
use crate::agent::Footprint;
use crate::contest::Parts;
use crate::host::Host;
use crate::load::Load;
use crate::sample::Sample;
use crate::tree::Tree;

const MIB: f64 = 1024.0 * 1024.0;

/// What came of a comparison.
struct Contest {
    title: String,
    samples: Vec<(&'static str, Sample)>,
    /// Of the first one, medians.
    parts: [(&'static str, Duration); 4],
}

/// Everything that was measured.
pub(crate) struct Report {
    began: Host,
    ended: Option<Host>,
    /// Files and bytes of what is searched.
    tree: Option<(u64, u64)>,
    contests: Vec<Contest>,
    footprints: Vec<(&'static str, Footprint)>,
    load: Option<Load>,
    goals: Vec<Goal>,
}

impl Report {
    pub(crate) fn new(began: Host) -> Self {
        Self {
            began,
            ended: None,
            tree: None,
            contests: Vec::new(),
            footprints: Vec::new(),
            load: None,
            goals: Vec::new(),
        }
    }

    pub(crate) fn tree(&mut self, tree: &Tree) {
        self.tree = Some((tree.files, tree.bytes));
    }

    /// Takes a comparison in; the medians, in the order of the contenders.
    pub(crate) fn contest<const N: usize>(
        &mut self,
        title: &str,
        samples: Vec<(&'static str, Sample)>,
        parts: &Parts,
    ) -> [Duration; N] {
        let medians: Vec<_> = samples.iter().map(|(_, sample)| sample.median()).collect();
        eprintln!("{title}: done");
        self.contests.push(Contest { title: title.to_owned(), samples, parts: parts.medians() });
        medians.try_into().expect("as many as there are contenders")
    }

    pub(crate) fn goal(&mut self, goal: Goal) {
        self.goals.push(goal);
    }

    pub(crate) fn load(&mut self, load: Load) {
        self.load = Some(load);
    }

    pub(crate) fn footprint(&mut self, footprint: Footprint, when: &'static str) {
        self.footprints.push((when, footprint));
    }

    /// The last look at the machine.
    pub(crate) fn finish(&mut self, host: Host) {
        let most = |of: fn(&Footprint) -> u64| self.footprints.iter().map(|(_, found)| of(found)).max();
        let goals = [
            ("agent's resident memory while idle", most(|found| found.resident), 4.0),
            ("agent's binary", most(|found| found.binary), 5.0),
        ];
        for (what, bytes, goal) in goals {
            self.goals.extend(bytes.map(|bytes| Goal::mib_at_most(what, bytes, goal)));
        }
        self.ended = Some(host);
    }

    /// Whether no goal was missed.
    pub(crate) fn met(&self) -> bool {
        self.goals.iter().all(Goal::met)
    }

    pub(crate) fn json(&self) -> String {
        let times = |sample: &Sample| {
            json!({
                "count": sample.len(),
                "least_us": micros(sample.least()),
                "median_us": micros(sample.median()),
                "p99_us": micros(sample.p99()),
            })
        };
        let contests = self.contests.iter().map(|Contest { title, samples, parts }| {
            let parts = parts.iter().map(|(part, time)| ((*part).to_owned(), json!(micros(*time))));
            let samples = samples.iter().map(|(name, sample)| ((*name).to_owned(), times(sample)));
            let parts = ("medians of parts, us".to_owned(), Value::Object(parts.collect()));
            (title.clone(), Value::Object(samples.chain([parts]).collect()))
        });
        let footprints = self.footprints.iter().map(|(when, found)| {
            ((*when).to_owned(), json!({ "resident_bytes": found.resident, "binary_bytes": found.binary, "threads": found.threads }))
        });
        let load = self.load.as_ref().map(|load| {
            let spent = load.spent.iter().map(|(name, spent)| ((*name).to_owned(), json!(micros(*spent))));
            json!({
                "connections": load.connections,
                "reads": load.reads,
                "took_us": micros(load.took),
                "reads_per_second": load.rate(),
                "latency": times(&load.sample),
                "processor_us": Value::Object(spent.collect()),
            })
        });
        let report = json!({
            "host": { "before": self.began.json(), "after": self.ended.as_ref().map(Host::json) },
            "tree": self.tree.map(|(files, bytes)| json!({ "files": files, "bytes": bytes })),
            "contests": Value::Object(contests.collect()),
            "load": load,
            "agent": Value::Object(footprints.collect()),
            "goals": self.goals.iter().map(Goal::json).collect::<Vec<_>>(),
        });
        format!("{report:#}\n")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Host { processor, processors, kernel, load } = &self.began;
        writeln!(f, "\n{processors} × {processor}, Linux {kernel}")?;
        let after = self.ended.as_ref().map_or("", |host| host.load.as_str());
        writeln!(f, "load average {load} before, {after} after (this benchmark included)")?;
        if let Some((files, bytes)) = self.tree {
            writeln!(f, "tree: {files} files, {bytes} bytes")?;
        }
        writeln!(f, "\n{:54} {:>10} {:>10} {:>8} {:>8}", "", "median", "p99", "times", "ratio")?;
        for Contest { title, samples, parts } in &self.contests {
            // What is no tool call has none.
            let known = parts.iter().filter(|(part, _)| !part.is_empty());
            let parts: Vec<_> = known.map(|(part, median)| format!("{part} {}", time(*median))).collect();
            let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
            writeln!(f, "{title}{parts}")?;
            let first = samples.first().map(|(_, sample)| sample.median()).unwrap_or_default();
            for (name, sample) in samples {
                let ratio = sample.median().as_secs_f64() / first.as_secs_f64();
                let (median, p99) = (time(sample.median()), time(sample.p99()));
                writeln!(f, "  {name:52} {median:>10} {p99:>10} {:>8} {ratio:>8.2}", sample.len())?;
            }
        }
        if let Some(load) = &self.load {
            self.load_lines(f, load)?;
        }
        if !self.footprints.is_empty() {
            writeln!(f, "\n{:54} {:>10} {:>10} {:>8}", "agent", "resident", "binary", "threads")?;
        }
        for (when, Footprint { resident, binary, threads }) in &self.footprints {
            writeln!(f, "  {when:52} {:>10} {:>10} {threads:>8}", mib(*resident), mib(*binary))?;
        }
        writeln!(f, "\n{:54} {:>10} {:>10}", "goals", "measured", "goal")?;
        for goal in &self.goals {
            writeln!(f, "  {goal}")?;
        }
        Ok(())
    }
}

impl Report {
    #[allow(clippy::unused_self)] // a part of Display
    fn load_lines(&self, f: &mut fmt::Formatter<'_>, load: &Load) -> fmt::Result {
        writeln!(
            f,
            "\nread of 4 KiB over {} connections for {}: {:.0} a second, median {}, p99 {}",
            load.connections,
            time(load.took),
            load.rate(),
            time(load.sample.median()),
            time(load.sample.p99()),
        )?;
        for (name, spent) in &load.spent {
            let part = 100.0 * spent.as_secs_f64() / load.took.as_secs_f64();
            writeln!(f, "  {name:52} {part:>9.0}% of a processor")?;
        }
        Ok(())
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
