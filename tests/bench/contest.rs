//! Several ways to the same end, measured in turns.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use harness::v1::Timings;
use harness::v1::operation::Kind as Operation;
use harness::v1::result::Kind as Answer;

use crate::sample::Sample;
use crate::stage::{Stage, succeeded};

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

/// Where the time of calls went, as the daemon says. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Parts(Rc<RefCell<[(&'static str, Sample); 4]>>);

impl Parts {
    fn add(&self, timings: &Timings) {
        let Timings { queue_us, policy_us, audit_us, execution_us } = *timings;
        let parts = [("queue", queue_us), ("policy", policy_us), ("audit", audit_us), ("lane", execution_us)];
        for ((part, sample), (name, micros)) in self.0.borrow_mut().iter_mut().zip(parts) {
            *part = name;
            sample.add(Duration::from_micros(micros));
        }
    }

    /// The median of each.
    pub(crate) fn medians(&self) -> [(&'static str, Duration); 4] {
        self.0.borrow().each_ref().map(|(part, sample)| (*part, sample.median()))
    }
}

/// A call on a connection of its own, whose answer is looked at outside the time that counts.
pub(crate) async fn call<'a>(
    stage: &'a Stage,
    operation: Operation,
    parts: &Parts,
    look: impl Fn(Answer) + Copy + 'a,
) -> Act<'a> {
    let (tools, request, parts) = (stage.tools().await, stage.call(operation), parts.clone());
    Box::new(move || {
        let (mut tools, request, parts) = (tools.clone(), request.clone(), parts.clone());
        Box::pin(async move {
            let began = Instant::now();
            let response = tools.call(request).await.unwrap();
            let took = began.elapsed();
            let response = response.into_inner();
            parts.add(&response.timings.unwrap_or_default());
            look(succeeded(response));
            took
        })
    })
}
