//! Checks what a private daemon needs of this host, before anything is made.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use doctor::{Finding, Verdict};
use tokio::process::Command;

use crate::coffer::this_program;
use crate::daemon;
use crate::failure::Failure;

/// Returns the path of `cofferd` if this host has all that it needs.
///
/// `words` is the command after `coffer`, for the message that root is needed.
pub(crate) async fn check(words: &str, busybox: &Path) -> Result<PathBuf, Failure> {
    let this = this_program()?;
    let program = daemon::find(&this, std::env::var_os("PATH").as_deref()).ok_or_else(|| {
        Failure::failed(
            format!("cofferd is neither beside {} nor in PATH", this.display()),
            "install cofferd and coffer of the same release into one directory",
        )
    })?;
    same_release(&program).await?;
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::failed(
            "cofferd mounts workspaces into containers, which needs root",
            format!("run `sudo {} {words}`", this.display()),
        ));
    }
    if let Some(finding) =
        doctor::examine(None).await.iter().find(|finding| finding.verdict == Verdict::Missing)
    {
        return Err(missing(finding));
    }
    match doctor::default_image(busybox) {
        finding if finding.verdict == Verdict::Good => Ok(program),
        finding => Err(no_image(&finding)),
    }
}

/// Checks that both programs have the same version, because their protocol may differ otherwise.
async fn same_release(program: &Path) -> Result<(), Failure> {
    let mut command = Command::new(program);
    let asked = command.arg("--version").stdin(Stdio::null()).kill_on_drop(true).output().await;
    let said = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let said = said.unwrap_or_else(|error| error.to_string());
    let own = env!("CARGO_PKG_VERSION");
    if said == format!("cofferd {own}") {
        return Ok(());
    }
    Err(Failure::failed(
        format!("{} is not cofferd {own}: {}", program.display(), text::excerpt(&said)),
        "install cofferd and coffer of the same release into one directory",
    ))
}

fn missing(finding: &Finding) -> Failure {
    Failure::failed(
        format!("{}: {}", finding.topic, finding.found),
        finding.follows.clone().unwrap_or_else(|| "`coffer doctor` says more".to_owned()),
    )
}

/// Returns the failure that the default image cannot be made.
fn no_image(finding: &Finding) -> Failure {
    let install = finding.remedy.as_ref().map_or_else(
        || "install a static busybox (Debian, Ubuntu: apt-get install busybox-static)".to_owned(),
        |remedy| format!("to {}, run `{}`", remedy.why, remedy.shown()),
    );
    Failure::failed(
        format!("the default image cannot be made: {}", finding.found),
        format!("{install}; or name another with --busybox"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_image_needs_a_static_busybox() {
        let finding = doctor::default_image(Path::new("/nonexistent/busybox"));
        let failure = no_image(&finding);
        assert_eq!(
            failure.to_string(),
            "the default image cannot be made: no busybox at /nonexistent/busybox: there is no such file"
        );
        assert!(failure.next().contains("--busybox"), "{}", failure.next());
        let without = no_image(&Finding { remedy: None, ..finding });
        assert!(without.next().contains("busybox-static"), "{}", without.next());
    }

    #[test]
    fn a_finding_becomes_a_message_with_its_remedy() {
        let finding = Finding::missing("engine", "no answer on /s", "install and start Docker");
        let failure = missing(&finding);
        assert_eq!(failure.to_string(), "engine: no answer on /s");
        assert_eq!(failure.next(), "install and start Docker");
    }
}
