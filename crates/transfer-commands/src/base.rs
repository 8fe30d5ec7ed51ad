//! `coffer base push`.

use clap::Args;
use cofferdam_client::Client;
use command_context::client::{Context, pages, quick};
use fleet_view::Fleet;
use presentation::failure::{Ended, Failure};
use presentation::ids;
use wire::v1::export_base_response::Part as Came;
use wire::v1::{
    Base, ExportBaseRequest, ExportBaseResponse, GetViewerRequest, ImportBaseHeader, ImportBaseRequest,
    ListBasesRequest, import_base_request::Part as Sent,
};

use crate::nodes::Nodes;
use crate::push::{Arrived, Parcel, push, same};
use crate::relay::{Part, relay};

/// Largest page of a list, and number of bases that are searched.
const PAGE: u32 = 500;
const MOST: usize = 100_000;
const LIST: &str = "coffer base list";

/// Copy a base to other daemons, through this client; prints a line for each, with the id of the base there.
///
/// The copy has the same digest, and belongs to you. A daemon on which you have an unchanged base of this digest is left
/// out, so an interrupted command can be repeated. For operators, on the Unix socket or with a certificate.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer --fleet=nodes.yaml base push 3f2a9c01")]
pub struct PushBase {
    /// The base's id, or a unique beginning or end of it.
    #[arg(value_name = "BASE")]
    base: String,
    #[command(flatten)]
    nodes: Nodes,
}

impl PushBase {
    /// Pushes from the daemon of `--endpoint` to the named ones.
    pub async fn run(self, context: &Context) -> Ended {
        let (source, targets) = self.nodes.connect(context, bases).await?;
        let parcel = BaseParcel(find(&source.has.bases, &self.base)?.clone());
        push(context.ui, &parcel, &source, targets).await
    }

    /// Pushes from one node of a fleet to others.
    pub async fn over(self, fleet: &Fleet) -> Ended {
        let has_it = |has: &ShownBases| find(&has.bases, &self.base).is_ok();
        let (source, targets) = self.nodes.find(fleet, bases, has_it).await?;
        let parcel = BaseParcel(find(&source.has.bases, &self.base)?.clone());
        push(fleet.ui, &parcel, &source, targets).await
    }
}

/// Bases that a daemon shows to this client, which as an operator sees those of others as well.
struct ShownBases {
    /// Name of this client at the daemon.
    viewer: String,
    bases: Vec<Base>,
}

async fn bases(client: &Client) -> Result<ShownBases, Failure> {
    let viewer = client.console().get_viewer(quick(GetViewerRequest {})).await?.into_inner().principal;
    let (bases, _) = pages(MOST, PAGE, async |page_size, page_token| {
        let request = ListBasesRequest { page_size, page_token };
        let page = client.bases().list_bases(request).await?.into_inner();
        Ok((page.bases, page.next_page_token))
    })
    .await?;
    Ok(ShownBases { viewer, bases })
}

/// Returns the base that `named` names by its whole id, or by a unique end or beginning.
fn find<'b>(bases: &'b [Base], named: &str) -> Result<&'b Base, Failure> {
    let id = ids::pick(bases.iter().map(|base| base.base_id.as_str()), named, "base", LIST)?;
    let found = bases.iter().find(|base| base.base_id == id);
    found.ok_or_else(|| Failure::failed(format!("there is no base `{named}`")))
}

struct BaseParcel(Base);

impl Parcel for BaseParcel {
    type Has = ShownBases;

    fn name(&self) -> String {
        format!("base {}", self.0.base_id)
    }

    /// A base of another principal is no copy: its owner may delete it, and an import does not answer with it either.
    fn present(&self, has: &ShownBases) -> Result<Option<String>, Failure> {
        let is_same =
            |base: &&Base| base.principal == has.viewer && base.digest == self.0.digest && !base.changed;
        Ok(has.bases.iter().find(is_same).map(|base| base.base_id.clone()))
    }

    async fn copy(&self, from: &Client, to: &Client, at: impl Fn(u64)) -> Result<Arrived, Failure> {
        let request = ExportBaseRequest { base_id: self.0.base_id.clone() };
        let export = from.bases().export_base(request).await?.into_inner();
        let header = ImportBaseHeader { digest: self.0.digest.clone(), origin: self.0.base_id.clone() };
        let header = ImportBaseRequest { part: Some(Sent::Header(header)) };
        let message = |piece: Option<Vec<u8>>| ImportBaseRequest { part: piece.map(Sent::Piece) };
        let part = |came: ExportBaseResponse| {
            Some(match came.part? {
                Came::Base(_) => Part::Begin,
                Came::Piece(piece) => Part::Piece(piece),
                Came::VerifiedDigest(_) => Part::End,
            })
        };
        let mut bases = to.bases();
        let import = move |messages| async move { bases.import_base(messages).await };
        let answer = relay(export, part, (header, message), import, at).await?;
        let Base { base_id: id, digest, .. } = answer.base.unwrap_or_default();
        same("digest", digest, &self.0.digest)?;
        Ok(Arrived { id, present: answer.reused })
    }

    fn size(&self) -> u64 {
        self.0.size_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(id: &str, digest: &str, changed: bool) -> Base {
        let base_id = format!("0198a1b2-0000-7000-8000-0000000{id}");
        Base { base_id, digest: digest.into(), changed, principal: "uid:0".into(), ..Base::default() }
    }

    #[test]
    fn a_base_is_there_by_its_digest_and_not_by_its_id() {
        let parcel = BaseParcel(base("0000a", "aa", false));
        let there =
            |base: Base| parcel.present(&ShownBases { viewer: "uid:0".into(), bases: vec![base] }).unwrap();
        assert_eq!(
            there(base("0000b", "aa", false)),
            Some("0198a1b2-0000-7000-8000-00000000000b".to_owned())
        );
        assert_eq!(there(base("0000a", "bb", false)), None);
        assert_eq!(there(base("0000b", "aa", true)), None, "the host has changed it");
        let other = Base { principal: "uid:1000".into(), ..base("0000b", "aa", false) };
        assert_eq!(there(other), None, "another principal's");
    }

    #[test]
    fn a_base_is_found_by_a_part_of_its_id() {
        let bases = [base("0000a", "aa", false), base("0000b", "bb", false)];
        assert_eq!(find(&bases, "0000000a").unwrap().digest, "aa");
        assert!(find(&bases, "0198a1b2").is_err() && find(&bases, "../x").is_err());
    }
}
