//! `[admin]`: the secrets of operators, by name, and what each may do.

use std::collections::HashSet;
use std::str::FromStr;

use runtime::config::Reader;
use schemas::Secret;

use super::strength::{self, ADMIN_BITS_MIN};

/// The name of `admin.secret`.
pub(crate) const FIRST_NAME: &str = "admin";
const NAME_CHARS_MAX: usize = 40;

/// Permissions of the holder of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Read everything.
    Read,
    /// Read everything and give every command.
    Operate,
}

two_words!(Scope: "read" = Read, "operate" = Operate);

/// A secret of the admin API beside `admin.secret`.
#[derive(Debug, Clone)]
pub struct AdminSecret {
    /// Holder of the secret, for log lines and the audit.
    pub name: String,
    pub scope: Scope,
    pub secret: Secret,
}

/// Reads `[[admin.secrets]]`.
pub(super) fn read_secrets(admin: &mut Reader) -> Vec<AdminSecret> {
    let (mut secrets, mut names) = (Vec::new(), HashSet::from([FIRST_NAME.to_owned()]));
    for mut section in admin.sections("secrets") {
        let name: String = section.parsed("name").unwrap_or_default();
        let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.@".contains(c));
        if !is_plain || name.len() > NAME_CHARS_MAX {
            let what = format!("must be at most {NAME_CHARS_MAX} letters, digits, -, _, . and @");
            section.problem("name", &what);
        } else if !name.is_empty() && !names.insert(name.clone()) {
            section.problem("name", "is given twice");
        }
        let scope = section.parsed("scope").unwrap_or(Scope::Read);
        let secret = section.required_secret("secret");
        strength::check(&section, "secret", &secret, ADMIN_BITS_MIN);
        section.finish();
        secrets.push(AdminSecret { name, scope, secret });
    }
    secrets
}

/// Pairs of settings with equal secrets, the later one first.
pub(super) fn same(secrets: &[(String, &Secret)]) -> Vec<(String, String)> {
    let is_given = |secret: &Secret| !secret.expose().is_empty();
    let mut pairs = Vec::new();
    for (number, (key, secret)) in secrets.iter().enumerate() {
        let mut earlier = secrets.iter().take(number);
        let same = earlier.find(|(_, of)| is_given(secret) && of.matches(secret.expose()));
        pairs.extend(same.map(|(of, _)| (key.clone(), of.clone())));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::config::tests;

    fn read(admin: &str, merchant: &str) -> (Config, Vec<String>) {
        tests::read(&format!("[admin]\n{admin}\n[merchant]\n{merchant}\n"))
    }

    const ADMIN: &str = "admin-secret-7uJ3nB5vC8xZ1aS6dF2gH9";
    const MERCHANT: &str = "secret = 'merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5'";

    #[test]
    fn operators_have_secrets_by_name() {
        let admin = "secret = 'admin-5vN8xK2qL7wR'
            [[admin.secrets]]
            name = 'books@shop.test'
            scope = 'read'
            secret = 'books-9pT4hD6sJ3mZ'
            [[admin.secrets]]
            name = 'night-shift'
            scope = 'operate'
            secret = 'night-2cF8yG5bV7nQ'";
        let (config, problems) = read(admin, MERCHANT);
        assert_eq!(problems, [""; 0]);
        let found: Vec<_> = config.operators.iter().map(|of| (&*of.name, of.scope)).collect();
        assert_eq!(found, [("books@shop.test", Scope::Read), ("night-shift", Scope::Operate)]);
        assert!(!format!("{config:?}").contains("5vN8xK2qL7wR"));
    }

    #[test]
    fn secrets_that_are_short_or_shared_are_refused() {
        let admin = "secret = 'short'
            [[admin.secrets]]
            name = 'admin'
            scope = 'write'
            secret = 'merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5'
            [[admin.secrets]]
            name = 'a b'
            scope = 'read'
            [[admin.secrets]]
            name = ''
            scope = 'read'
            secret = 'shared-3kP9wX6nB4tH'
            [[admin.secrets]]
            name = 'eve'
            scope = 'read'
            secret = 'shared-3kP9wX6nB4tH'
            colour = 'blue'";
        let (_, problems) = read(admin, MERCHANT);
        assert_eq!(
            problems,
            [
                "admin.secret: is too easy to guess (below 50 bits): draw one at random, such as by `openssl rand -base64 32`",
                "admin.secrets[0].name: is given twice",
                "admin.secrets[0].scope: must be \"read\" or \"operate\"",
                "admin.secrets[1].name: must be at most 40 letters, digits, -, _, . and @",
                "admin.secrets[1].secret: is missing: give secret, secret_file, or its variable",
                "admin.secrets[2].name: must not be empty",
                "admin.secrets[3].colour: unknown key",
                "admin.secrets[0].secret: must differ from merchant.secret",
                "admin.secrets[3].secret: must differ from admin.secrets[2].secret",
            ]
        );
        for (previous, expected) in [
            ("merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5", &[][..]),
            ("short", &[]),
            (ADMIN, &["admin.secret: must differ from merchant.previous_secret"]),
        ] {
            let merchant = format!("{MERCHANT}\nprevious_secret = '{previous}'");
            assert_eq!(read(&format!("secret = '{ADMIN}'"), &merchant).1, expected);
        }
        let (_, problems) =
            read("secret = 'merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5'\nsecrets = 7", MERCHANT);
        assert_eq!(
            problems,
            [
                "admin.secrets: must be written [[admin.secrets]]",
                "admin.secret: must differ from merchant.secret",
            ]
        );
    }
}
