//! Says how the container of a run was started.

use wire::v1::Run;
use wire::v1::run::{ColdBecause, StartKind};

/// Returns the kind of the start, and the reason of a cold one. Empty for a run that was not started.
pub(super) fn kind(run: &Run) -> String {
    match (run.start_kind(), reason(run.cold_because())) {
        (StartKind::Warm, _) => "warm".to_owned(),
        (StartKind::Cold, "") => "cold".to_owned(),
        (StartKind::Cold, why) => format!("cold: {why}"),
        (StartKind::Unspecified, _) => String::new(),
    }
}

fn reason(because: ColdBecause) -> &'static str {
    match because {
        ColdBecause::Unspecified => "",
        ColdBecause::NoPool => "no entry of `pool` is for its profile and image",
        ColdBecause::UnsupportedHost => "this host has no warm containers, see the daemon's log",
        ColdBecause::OwnKernel => "gVisor takes no mounts later",
        ColdBecause::RootInUserNamespace => "its profile has `root_in_user_namespace`",
        ColdBecause::PkgPath => "it has a directory at /pkg",
        ColdBecause::FirstOfItsKind => "the first of its image, limits and writable paths lately",
        ColdBecause::NoneWaits => "all that waited were taken",
        ColdBecause::NotUsable => "the one that waited had changed, see the daemon's log",
        ColdBecause::TenantShare => "its tenant has had its share of the pool, see `coffer limits`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cold_start_has_its_reason_if_it_is_known() {
        let run = |start: StartKind, because: ColdBecause| Run {
            start_kind: start.into(),
            cold_because: because.into(),
            ..Run::default()
        };
        assert_eq!(kind(&Run::default()), "");
        assert_eq!(kind(&run(StartKind::Warm, ColdBecause::Unspecified)), "warm");
        assert_eq!(kind(&run(StartKind::Cold, ColdBecause::Unspecified)), "cold");
        assert_eq!(kind(&run(StartKind::Cold, ColdBecause::NoneWaits)), "cold: all that waited were taken");
    }
}
