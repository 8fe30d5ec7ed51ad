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
            if ratio.is_nan() || *ratio > most {
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
