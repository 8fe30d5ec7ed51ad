//! The options with the files for https.

use std::path::PathBuf;

use clap::Args;
use cofferdam_client::Tls;

/// Files that authenticate the daemon and its client, for https.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    /// For https: a directory with ca.pem, cert.pem and key.pem, as `coffer tls init` makes one for each client.
    /// Default: COFFERDAM_TLS.
    #[arg(long = "tls", global = true, id = "tls_directory", value_name = "DIR", help_heading = "Global options", conflicts_with_all = ["tls_ca", "tls_cert", "tls_key"])]
    directory: Option<PathBuf>,
    /// For https: the authority that must have signed the daemon's certificate. Default: one that this host trusts.
    #[arg(long = "ca", global = true, id = "tls_ca", value_name = "FILE", help_heading = "Global options")]
    ca: Option<PathBuf>,
    /// For https: the client's certificate.
    #[arg(
        long = "cert",
        global = true,
        id = "tls_cert",
        value_name = "FILE",
        requires = "tls_key",
        help_heading = "Global options"
    )]
    cert: Option<PathBuf>,
    /// For https: the key of the client's certificate.
    #[arg(
        long = "cert-key",
        global = true,
        id = "tls_key",
        value_name = "FILE",
        requires = "tls_cert",
        help_heading = "Global options"
    )]
    key: Option<PathBuf>,
}

impl Files {
    /// Returns the files that the command line names, or else those in the directory that `variable` names.
    pub(crate) fn or(self, variable: Option<String>) -> Tls {
        let directory = match self.directory {
            None if self == Self::default() => variable.map(PathBuf::from),
            directory => directory,
        };
        match directory {
            Some(directory) => Tls::directory(&directory),
            None => Tls { ca: self.ca, pair: self.cert.zip(self.key) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_overrides_environment_variable() {
        let variable = || Some("/from/variable".to_owned());
        let named = Files { ca: Some("/ca".into()), ..Files::default() };
        assert_eq!(named.or(variable()), Tls { ca: Some("/ca".into()), pair: None });
        let directory = Files { directory: Some("/named".into()), ..Files::default() };
        assert_eq!(directory.or(variable()).ca, Some("/named/ca.pem".into()));
        assert_eq!(Files::default().or(variable()).ca, Some("/from/variable/ca.pem".into()));
        assert_eq!(Files::default().or(None), Tls::default());
    }
}
