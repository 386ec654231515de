//! Where the admin listener's tokens come from: files, or the environment, but never the command line, which every user
//! of the machine can read.
//!
//! Must not know: what tokens are good for.

use std::error::Error;
use std::path::PathBuf;

use tollgate_server::admin::AdminTokens;

use super::settings::{read_secret, read_variable};

/// The tokens themselves, for those who keep secrets in the environment.
const READ_TOKEN_VARIABLE: &str = "TOLLGATE_ADMIN_READ_TOKEN";
const OPERATE_TOKEN_VARIABLE: &str = "TOLLGATE_ADMIN_OPERATE_TOKEN";

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Admin")]
pub(crate) struct TokenFiles {
    /// A file with the token that may read on the admin listener; or the token itself in TOLLGATE_ADMIN_READ_TOKEN
    #[arg(long, value_name = "FILE", env = "TOLLGATE_ADMIN_READ_TOKEN_FILE")]
    admin_read_token_file: Option<PathBuf>,
    /// A file with the token that may also operate: switch, override, block, reset, reload; or the token itself in TOLLGATE_ADMIN_OPERATE_TOKEN
    #[arg(long, value_name = "FILE", env = "TOLLGATE_ADMIN_OPERATE_TOKEN_FILE")]
    admin_operate_token_file: Option<PathBuf>,
}

impl TokenFiles {
    /// Reads whatever there is.
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
