//! `coffer call tools`.

use clap::Args;
use wire::v1::ListToolsRequest;
use wire::v1::list_tools_request::Format;

use crate::client::{Context, quick};
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::run_ref::RunRef;
use crate::verbs::one_of;

/// Print the tools that the run's agent may use, as JSON ready for a model's API.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer call tools 3f2a9c01 --dialect fs --format anthropic")]
pub(crate) struct Tools {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN", default_value = "-")]
    run: RunRef,
    /// `code`, `native`, `fs`, `exec`, `gateway`, `forge` or `editor`. Default: native.
    #[arg(long, value_name = "DIALECT")]
    dialect: Option<String>,
    /// Format of this vendor's API.
    #[arg(long, value_name = "FORMAT", default_value = "openai", value_parser = one_of(FORMATS, Format::from_str_name))]
    format: Format,
    /// Print the text for a model's prompt instead, where the dialect has one (forge).
    #[arg(long, conflicts_with = "format")]
    prompt: bool,
    /// Print the state of the upstream MCP servers instead, with the hashes that a policy can pin.
    #[arg(long, conflicts_with_all = ["format", "prompt"])]
    mcp_servers: bool,
}

const FORMATS: &[&str] = &["openai", "anthropic", "mcp"];

impl Tools {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let request = ListToolsRequest {
            run_id: self.run.resolve(&client).await?,
            dialect: self.dialect.unwrap_or_default(),
            format: self.format.into(),
        };
        let response = client.tools().list_tools(quick(request)).await?.into_inner();
        if self.prompt {
            if response.prompt.is_empty() {
                return Err(Failure::usage("this dialect has no text for a prompt; forge has one"));
            }
            let mut page = context.ui.page();
            page.raw(&response.prompt).end_line();
            context.ui.show(&page)?;
            return Ok(Exit::Ok);
        }
        if self.mcp_servers {
            context.ui.document(&response.mcp_servers)?;
            return Ok(Exit::Ok);
        }
        let mut talk = context.ui.talk();
        for server in &response.mcp_servers {
            if !server.available {
                talk.own("the MCP server ")
                    .word(&server.name)
                    .own(" is not available: ")
                    .word(&server.problem)
                    .own("\n");
            }
            for withheld in &server.withheld {
                talk.own("withheld of the MCP server ").word(&server.name).own(": ").word(withheld).own("\n");
            }
        }
        context.ui.say(&talk);
        let tools: serde_json::Value = serde_json::from_str(&response.tools_json)?;
        context.ui.document(&tools)?;
        Ok(Exit::Ok)
    }
}
