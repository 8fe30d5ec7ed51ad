//! Several ways to the same end, measured in turns.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::sample::Sample;

/// Does the thing once and says how long it took.
pub(crate) type Act<'a> = Box<dyn FnMut() -> Pin<Box<dyn Future<Output = Duration> + 'a>> + 'a>;

/// One of the ways.
pub(crate) struct Contender<'a> {
    name: &'static str,
    /// Times in each round: more for what is quick, so that the slow ones do not take all the time.
    turns: usize,
    act: Act<'a>,
}

impl<'a> Contender<'a> {
    pub(crate) fn new(name: &'static str, turns: usize, act: Act<'a>) -> Self {
        Self { name, turns, act }
    }
}

/// Rounds that are thrown away: caches fill, connections warm up, lazy things are made.
const WARM_UP: usize = 3;

/// Lets them take turns; a sample of each, in their order.
pub(crate) async fn hold(mut contenders: Vec<Contender<'_>>, rounds: usize) -> Vec<(&'static str, Sample)> {
    let mut samples: Vec<_> =
        contenders.iter().map(|contender| (contender.name, Sample::default())).collect();
    for round in 0..WARM_UP + rounds {
        for (contender, (_, sample)) in contenders.iter_mut().zip(&mut samples) {
            for _ in 0..contender.turns {
                let time = (contender.act)().await;
                if round >= WARM_UP {
                    sample.add(time);
                }
            }
        }
    }
    samples
}
