//! The daemons of a push: addresses on the command line, or nodes of a fleet by their numbers.

use clap::Args;
use cofferdam_client::{Client, Endpoint, NodeId};
use command_context::client::Context;
use fleet_view::Fleet;
use presentation::failure::Failure;

/// Arguments that name the daemons of a push.
#[derive(Args, Debug)]
pub(crate) struct Nodes {
    /// Daemons to push to: addresses, such as https://node-2.example.org:7443, or with --fleet the numbers of nodes.
    /// With --fleet and no NODE: all others.
    #[arg(value_name = "NODE")]
    targets: Vec<String>,
    /// With --fleet: number of the node to push from. Default: the one that has it.
    #[arg(long, value_name = "N")]
    from: Option<NodeId>,
}

/// A daemon that was asked for what it has.
pub(crate) struct Daemon<T> {
    /// Number of the node, or the address of a daemon without one.
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) has: T,
}

/// A target, or the reason why it cannot be reached.
pub(crate) type Target<T> = (String, Result<Daemon<T>, Failure>);

impl Nodes {
    /// Connects to the daemons that the command line names by their addresses, with the certificate for the source.
    pub(crate) async fn connect<T>(
        self,
        context: &Context,
        ask: impl AsyncFn(&Client) -> Result<T, Failure>,
    ) -> Result<(Daemon<T>, Vec<Target<T>>), Failure> {
        if self.from.is_some() {
            return Err(Failure::usage("--from is for --fleet: without it, --endpoint names the source"));
        }
        if self.targets.is_empty() {
            return Err(Failure::usage(
                "name at least one daemon to push to, or push to a fleet with --fleet",
            ));
        }
        let targets = self.targets.into_iter().map(|name| {
            let endpoint: Endpoint =
                name.parse().map_err(|wrong| Failure::usage(format!("`{name}`: {wrong}")))?;
            // A token opens no import, and another host has no business with the source's.
            Ok((name, context.daemon.at(endpoint).with_token(None)))
        });
        let targets = targets.collect::<Result<Vec<_>, Failure>>()?;
        let client = context.connect().await?;
        let has = ask(&client).await?;
        let source = Daemon { name: context.daemon.endpoint().to_string(), client, has };
        let mut reached = Vec::new();
        for (name, connect) in targets {
            let target = async {
                let client = connect.connect().await?;
                let has = ask(&client).await?;
                Ok::<_, Failure>(Daemon { name: name.clone(), client, has })
            };
            let target = target.await;
            reached.push((name, target));
        }
        Ok((source, reached))
    }

    /// Returns true if the command line says from which node of a fleet to push.
    pub(crate) fn has_source(&self) -> bool {
        self.from.is_some()
    }

    /// Finds the source and the targets in a fleet. `has_it` says if a node has what is pushed.
    pub(crate) async fn find<T>(
        self,
        fleet: &Fleet,
        ask: impl AsyncFn(&Client) -> Result<T, Failure>,
        has_it: impl Fn(&T) -> bool,
    ) -> Result<(Daemon<T>, Vec<Target<T>>), Failure> {
        if let Some(from) = self.from {
            // Fails if two daemons say that they are this node.
            fleet.connect_to(from).await?;
        }
        let ask = &ask;
        let answers = fleet.ask(async |node| Ok((node.client.clone(), ask(&node.client).await?))).await?;
        let reached =
            answers.all.into_iter().map(|(name, (client, has))| Daemon { name, client, has }).collect();
        self.choose(reached, answers.missing, has_it)
    }

    fn choose<T>(
        self,
        mut reached: Vec<Daemon<T>>,
        missing: Vec<(String, Failure)>,
        has_it: impl Fn(&T) -> bool,
    ) -> Result<(Daemon<T>, Vec<Target<T>>), Failure> {
        let from = self.from.map(|from| from.to_string());
        let is_source = |node: &Daemon<T>| match &from {
            Some(from) => node.name == *from,
            None => has_it(&node.has),
        };
        let source = reached.iter().position(is_source).ok_or_else(|| match &from {
            Some(from) => Failure::unreachable(format!("node {from} of the fleet does not answer")),
            None => Failure::failed("no node that answers has it"),
        })?;
        let source = reached.remove(source);
        let mut others: Vec<Target<T>> =
            reached.into_iter().map(|node| (node.name.clone(), Ok(node))).collect();
        others.extend(missing.into_iter().map(|(name, failure)| (name, Err(failure))));
        if self.targets.is_empty() {
            return Ok((source, others));
        }
        let mut targets = Vec::new();
        for name in self.targets {
            if name == source.name || targets.iter().any(|(chosen, _)| *chosen == name) {
                continue;
            }
            let at = others.iter().position(|(other, _)| *other == name);
            let at = at.ok_or_else(|| Failure::usage(format!("the fleet has no node {name}")))?;
            targets.push(others.swap_remove(at));
        }
        Ok((source, targets))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use cofferdam_client::Connect;
    use presentation::exit::Exit;
    use presentation::ui::{Format, Ui};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        nodes: Nodes,
    }

    fn nodes(line: &str) -> Nodes {
        Line::try_parse_from(std::iter::once("x").chain(line.split_whitespace())).unwrap().nodes
    }

    async fn refused(line: &str) -> Failure {
        let daemon = Connect::to("unix:/nonexistent/cofferd.sock".parse().unwrap());
        let context = Context { ui: Ui::new(Format::Json), daemon, explains: false };
        nodes(line).connect(&context, async |_| Ok(())).await.err().unwrap()
    }

    #[tokio::test]
    async fn a_push_without_a_fleet_needs_addresses_and_no_number() {
        for line in ["", "--from 7 https://b.example.org:7443", "7", "ftp://b.example.org"] {
            let failure = refused(line).await;
            assert_eq!(failure.exit(), Exit::Usage, "{line}: {failure}");
        }
        assert_eq!(refused("https://b.example.org:7443").await.exit(), Exit::Unreachable);
    }

    #[test]
    fn a_source_that_does_not_answer_is_an_error_and_a_node_that_is_none_too() {
        let choose = |line: &str, missing: &[&str]| {
            let missing = missing.iter().map(|name| ((*name).to_owned(), Failure::unreachable("down")));
            nodes(line).choose(Vec::<Daemon<bool>>::new(), missing.collect(), |has| *has).err().unwrap()
        };
        assert_eq!(choose("--from 7", &["7"]).exit(), Exit::Unreachable);
        let none = choose("8", &["7"]);
        assert!(none.exit() == Exit::Failed && none.to_string().contains("no node"), "{none}");
    }
}
