//! Ratios that were measured once, and how far today's may be from them.
//!
//! Times belong to a machine; a ratio to what another does at the same time on the same machine belongs to the code. Debug builds have
//! ratios of their own, so that a check need not wait for a release build.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Ratios by name: ours to the other's.
pub(crate) type Ratios = BTreeMap<String, f64>;

/// The stored ones.
#[derive(Debug)]
pub(crate) struct Baseline {
    /// So many times the stored ratio is still well.
    margin: f64,
    /// By kind of build.
    builds: BTreeMap<String, Ratios>,
}

impl Baseline {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let json: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let margin =
            json["margin"].as_f64().filter(|margin| *margin >= 1.0).ok_or("`margin` is no number above 1")?;
        let builds = json["builds"].as_object().ok_or("there is no `builds`")?;
        let ratios = |ratios: &Value| -> Option<Ratios> {
            let ratios = ratios.as_object()?.iter();
            ratios
                .map(|(name, ratio)| Some((name.clone(), ratio.as_f64().filter(|ratio| *ratio > 0.0)?)))
                .collect()
        };
        let builds = builds.iter().map(|(build, found)| {
            ratios(found)
                .map(|ratios| (build.clone(), ratios))
                .ok_or(format!("`{build}` has what is no ratio"))
        });
        Ok(Self { margin, builds: builds.collect::<Result<_, _>>()? })
    }

    /// What is wrong with the ratios of a build: they are too high, or the baseline has them not, or has others. `spared` are those that
    /// this daemon cannot have.
    pub(crate) fn objections(&self, build: &str, measured: &Ratios, spared: &[&str]) -> Vec<String> {
        let Some(stored) = self.builds.get(build) else {
            return vec![format!("the baseline has no build `{build}`: write it with --write-baseline")];
        };
        let mut objections = Vec::new();
        for (name, ratio) in measured {
            let Some(stored) = stored.get(name) else {
                objections.push(format!("{name}: not in the baseline"));
                continue;
            };
            let most = stored * self.margin;
            // What is no number is too high, too.
            if !(*ratio <= most) {
                objections
                    .push(format!("{name}: {ratio:.3}, and at most {most:.3} ({stored:.3} and its margin)"));
            }
        }
        let is_missing = |name: &&String| !measured.contains_key(*name) && !spared.contains(&name.as_str());
        let missing = stored.keys().filter(is_missing);
        objections.extend(missing.map(|name| format!("{name}: not measured")));
        objections
    }

    /// The same with other ratios for a build, as the file has it.
    pub(crate) fn with(&self, build: &str, measured: &Ratios) -> String {
        let mut builds = self.builds.clone();
        let rounded = measured.iter().map(|(name, ratio)| (name.clone(), (ratio * 1e4).round() / 1e4));
        builds.insert(build.to_owned(), rounded.collect());
        format!("{:#}\n", json!({ "margin": self.margin, "builds": builds }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: &str = r#"{"margin": 3, "builds": {"debug": {"a / b": 2.0, "c / d": 0.01}}}"#;

    fn objections(measured: &[(&str, f64)]) -> Vec<String> {
        let measured = measured.iter().map(|(name, ratio)| ((*name).to_owned(), *ratio)).collect();
        Baseline::parse(STORED).unwrap().objections("debug", &measured, &[])
    }

    #[test]
    fn ratios_within_the_margin_are_well_and_faster_is_never_wrong() {
        assert_eq!(objections(&[("a / b", 6.0), ("c / d", 0.0001)]), [""; 0]);
    }

    #[test]
    fn a_ratio_beyond_the_margin_is_named_with_both_numbers() {
        let said = objections(&[("a / b", 6.01), ("c / d", 0.01)]);
        assert_eq!(said, ["a / b: 6.010, and at most 6.000 (2.000 and its margin)"]);
        assert_eq!(objections(&[("a / b", f64::NAN), ("c / d", f64::INFINITY)]).len(), 2);
    }

    #[test]
    fn a_baseline_that_does_not_fit_what_is_measured_is_stale() {
        let said = objections(&[("a / b", 1.0), ("e / f", 1.0)]);
        assert_eq!(said, ["e / f: not in the baseline", "c / d: not measured"]);
        let baseline = Baseline::parse(STORED).unwrap();
        assert!(baseline.objections("release", &Ratios::new(), &[])[0].contains("no build `release`"));
        let spared = baseline.objections("debug", &Ratios::from([("a / b".to_owned(), 1.0)]), &["c / d"]);
        assert_eq!(spared, [""; 0], "what a daemon cannot have");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let measured = Ratios::from([("a / b".to_owned(), 1.234_56)]);
        let written = Baseline::parse(STORED).unwrap().with("release", &measured);
        let baseline = Baseline::parse(&written).unwrap();
        assert_eq!(baseline.builds["release"]["a / b"], 1.234_6);
        assert_eq!(baseline.builds["debug"].len(), 2);
    }

    #[test]
    fn a_broken_file_is_refused() {
        for text in
            ["", "{}", r#"{"margin": 0.5, "builds": {}}"#, r#"{"margin": 2, "builds": {"debug": {"a": -1}}}"#]
        {
            assert!(Baseline::parse(text).is_err(), "{text}");
        }
    }
}
