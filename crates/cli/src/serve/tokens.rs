//! Tokens of the admin listener, from files or the environment, never from the command line, which every user of the machine
//! can read.
//!
//! Must not know: what the tokens permit.

use std::error::Error;
use std::path::PathBuf;

use tollgate_server::admin::AdminTokens;

use super::settings::{read_secret, read_variable};

/// The variables with the tokens themselves.
pub(super) const READ_TOKEN_VARIABLE: &str = "TOLLGATE_ADMIN_READ_TOKEN";
pub(super) const OPERATE_TOKEN_VARIABLE: &str = "TOLLGATE_ADMIN_OPERATE_TOKEN";

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Admin")]
pub(crate) struct TokenFiles {
    /// File with the token for reading on the admin listener. Alternative: the token in TOLLGATE_ADMIN_READ_TOKEN
    #[arg(long, value_name = "FILE", env = "TOLLGATE_ADMIN_READ_TOKEN_FILE")]
    admin_read_token_file: Option<PathBuf>,
    /// File with the token for operator commands: switch, override, block, reset, reload. It also permits reading. Alternative: the token
    /// in TOLLGATE_ADMIN_OPERATE_TOKEN
    #[arg(long, value_name = "FILE", env = "TOLLGATE_ADMIN_OPERATE_TOKEN_FILE")]
    admin_operate_token_file: Option<PathBuf>,
}

impl TokenFiles {
    /// Reads the tokens that are set.
    pub(super) fn read(&self) -> Result<AdminTokens, Box<dyn Error>> {
        self.read_with(read_variable)
    }

    fn read_with(
        &self,
        environment: impl Fn(&'static str) -> Option<String>,
    ) -> Result<AdminTokens, Box<dyn Error>> {
        let find = |file: &Option<PathBuf>, name| read_secret(file.as_deref(), name, &environment);
        let read = find(&self.admin_read_token_file, READ_TOKEN_VARIABLE)?;
        let operate = find(&self.admin_operate_token_file, OPERATE_TOKEN_VARIABLE)?;
        Ok(AdminTokens::new(read.as_deref(), operate.as_deref())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    #[test]
    fn tokens_come_from_the_environment_or_a_file_but_not_from_both() {
        let none = TokenFiles::default();
        assert!(!none.read_with(|_| None).unwrap().is_any_set());
        let set = |name| (name == READ_TOKEN_VARIABLE).then(|| TOKEN.to_owned());
        assert!(none.read_with(set).unwrap().is_any_set());
        let both = TokenFiles {
            admin_read_token_file: Some("no-such-file".into()),
            ..TokenFiles::default()
        };
        let error = both.read_with(set).unwrap_err().to_string();
        assert!(error.starts_with(READ_TOKEN_VARIABLE), "{error}");
        let error = both.read_with(|_| None).unwrap_err().to_string();
        assert!(error.contains("no-such-file"), "{error}");
        let empty = none
            .read_with(|name| (name == READ_TOKEN_VARIABLE).then(String::new))
            .unwrap_err();
        assert!(empty.to_string().contains("it is empty"), "{empty}");
    }
}
