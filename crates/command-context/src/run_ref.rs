//! Finds the run that a command line names.

use std::str::FromStr;

use presentation::failure::Failure;
use presentation::ids;
use wire::v1::run::State;
use wire::v1::{ListRunsRequest, ListRunsResponse};

use crate::client::{Client, Context, pages, quick};

const VARIABLE: &str = "COFFERDAM_RUN";
/// Number of runs that are searched for a partial id.
const MOST: usize = 100_000;
const PAGE: u32 = 1000;

/// A run: its id, a unique beginning or end of it, or `-` for the run in `COFFERDAM_RUN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunRef {
    Id(String),
    Part(String),
    Environment,
}

impl FromStr for RunRef {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "-" => Self::Environment,
            id if ids::is_whole(id) => Self::Id(id.to_ascii_lowercase()),
            part => Self::Part(part.into()),
        })
    }
}

impl RunRef {
    /// Returns the run's whole id. Asks the daemon only to complete a partial id.
    pub async fn resolve(&self, client: &Client) -> Result<String, Failure> {
        match self {
            Self::Id(id) => Ok(id.clone()),
            Self::Part(part) => find(part, client).await,
            Self::Environment => match std::env::var(VARIABLE) {
                Ok(value) if !value.is_empty() => find(&value, client).await,
                _ => Err(Failure::usage(format!("no run is named, and {VARIABLE} is not set"))
                    .with_hint(format!("export {VARIABLE}=$(coffer run create …), or name the run"))),
            },
        }
    }
}

/// Returns the whole id of the run that a command line names. Returns an empty text, which means all runs in a request, if it names none.
pub async fn one_or_all(run: Option<&RunRef>, client: &Client) -> Result<String, Failure> {
    match run {
        Some(run) => run.resolve(client).await,
        None => Ok(String::new()),
    }
}

impl Context {
    /// Connects, and returns the id of the run that the command line names, or an empty text like [`one_or_all`].
    pub async fn connect_to<'r>(
        &self,
        run: impl Into<Option<&'r RunRef>>,
    ) -> Result<(Client, String), Failure> {
        let client = self.connect().await?;
        let run_id = one_or_all(run.into(), &client).await?;
        Ok((client, run_id))
    }
}

async fn find(part: &str, client: &Client) -> Result<String, Failure> {
    ids::resolve(part, "run", "coffer run list", async || {
        let all = all_runs(client, MOST, State::Unspecified).await?;
        Ok(all.runs.into_iter().map(|run| run.run_id).collect())
    })
    .await
}

/// Returns at most `limit` runs in a state, newest first.
pub async fn all_runs(client: &Client, limit: usize, state: State) -> Result<ListRunsResponse, Failure> {
    let (runs, next_page_token) = pages(limit, PAGE, async |page_size, page_token| {
        let request = ListRunsRequest { page_size, page_token, state: state.into(), ..Default::default() };
        let page = client.runs().list_runs(quick(request)).await?.into_inner();
        Ok((page.runs, page.next_page_token))
    })
    .await?;
    Ok(ListRunsResponse { runs, next_page_token, ..Default::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_are_distinguished() {
        let id = "0198A1B2-0000-7000-8000-00000000AAAA";
        assert_eq!(id.parse(), Ok(RunRef::Id(id.to_ascii_lowercase())));
        assert_eq!("aaaa".parse(), Ok(RunRef::Part("aaaa".into())));
        assert_eq!("-".parse(), Ok(RunRef::Environment));
    }
}
