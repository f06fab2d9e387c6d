//! The programs that the commands need, and the check that all of them are installed.

use std::process::Command;

use anyhow::{Result, bail};

use crate::shell;

const JDK: &str = "openjdk-17-jdk-headless";
/// Programs that are installed where they are missing, with their packages: images for CI lack them.
const PROVIDED: [(&str, &str); 2] = [("chromium", "chromium"), ("php", "php-cli")];

/// Tools that a part of the tests needs beside the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kit {
    /// Every build and every test.
    Build,
    /// The check of the dependencies.
    Check,
    /// Tests with servers, clients of other languages or third-party code.
    Services,
}

/// A program, the command to test it, and its package.
struct Tool {
    name: &'static str,
    command: &'static [&'static str],
    /// Minimum of the first number that the command prints.
    version_min: Option<u32>,
    /// Debian's name.
    package: &'static str,
    kit: Kit,
}

const TOOLS: [Tool; 20] = [
    tool("cc", &["cc", "--version"], "build-essential", Kit::Build),
    tool("c++", &["c++", "--version"], "build-essential", Kit::Build),
    tool("make", &["make", "--version"], "build-essential", Kit::Build),
    tool("pkg-config", &["pkg-config", "--version"], "pkg-config", Kit::Build),
    tool("OpenSSL's headers", &["pkg-config", "--exists", "openssl"], "libssl-dev", Kit::Build),
    tool("zlib's headers", &["pkg-config", "--exists", "zlib"], "zlib1g-dev", Kit::Build),
    tool("git", &["git", "--version"], "git", Kit::Build),
    tool("kill", &["kill", "-l"], "procps", Kit::Build),
    tool(
        "python3 with venv",
        &["python3", "-c", "import ensurepip, venv"],
        "python3-venv",
        Kit::Check,
    ),
    tool("java", &["java", "--version"], JDK, Kit::Services).at_least(17),
    tool("javac", &["javac", "--version"], JDK, Kit::Services).at_least(17),
    tool("keytool", &["keytool", "-help"], JDK, Kit::Services),
    tool("mvn", &["mvn", "--version"], "maven", Kit::Services),
    tool("node", &["node", "--version"], "nodejs", Kit::Services),
    tool("npm", &["npm", "--version"], "npm", Kit::Services),
    tool("openssl", &["openssl", "version"], "openssl", Kit::Services),
    tool("curl", &["curl", "--version"], "curl", Kit::Services),
    tool("go", &["go", "version"], "golang-go", Kit::Services),
    tool("chromium", &["chromium", "--version"], "chromium", Kit::Services),
    tool("php", &["php", "--version"], "php-cli", Kit::Services),
];

const fn tool(
    name: &'static str,
    command: &'static [&'static str],
    package: &'static str,
    kit: Kit,
) -> Tool {
    Tool { name, command, version_min: None, package, kit }
}

impl Tool {
    const fn at_least(self, version: u32) -> Self {
        Self { version_min: Some(version), ..self }
    }

    /// Reason why it cannot be used; `None` if it can.
    fn flaw(&self) -> Option<String> {
        let (program, arguments) = self.command.split_first()?;
        let output = match Command::new(program).args(arguments).output() {
            Ok(output) if output.status.success() => output,
            Ok(output) => return Some(format!("`{}` ends with {}", self.text(), output.status)),
            Err(error) => return Some(format!("`{program}`: {error}")),
        };
        let minimum = self.version_min?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let found = first_number(&printed);
        (found.is_none_or(|found| found < minimum)).then(|| {
            let version = printed.lines().next().unwrap_or("nothing");
            format!("`{}` prints {version}, not {minimum} or later", self.text())
        })
    }

    fn text(&self) -> String {
        self.command.join(" ")
    }
}

fn first_number(text: &str) -> Option<u32> {
    let digits = text.split(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty());
    digits.and_then(|digits| digits.parse().ok())
}

/// Installs [`PROVIDED`] programs where apt exists and the user is root, as in CI. Elsewhere [`check`] reports them.
fn provide() {
    let runs = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
    };
    let is_root = || {
        let user = Command::new("id").arg("-u").output();
        user.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
    };
    let missing = PROVIDED.iter().filter(|(program, _)| !runs(program, &["--version"]));
    let packages: Vec<_> = missing.map(|(_, package)| *package).collect();
    if packages.is_empty() || !is_root() || !runs("apt-get", &["--version"]) {
        return;
    }
    shell::say(&format!("installing {} by apt-get", packages.join(" and ")));
    let install = [&["install", "--yes", "--no-install-recommends"], &packages[..]].concat();
    if !(runs("apt-get", &["update"]) && runs("apt-get", &install)) {
        shell::say("apt-get could not install all of them");
    }
}

/// Checks all tools up to a kit before any of them is used.
///
/// # Errors
/// If one is missing. For each, a line is printed: what to install, and how.
pub(crate) fn check(kit: Kit) -> Result<()> {
    if kit >= Kit::Services {
        provide();
    }
    let needed: Vec<_> = TOOLS.iter().filter(|tool| tool.kit <= kit).collect();
    let flaws: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> =
            needed.iter().map(|tool| (*tool, scope.spawn(|| tool.flaw()))).collect();
        let ended = running.into_iter().map(|(tool, flaw)| {
            (tool, flaw.join().unwrap_or_else(|_| Some("the check panicked".to_owned())))
        });
        ended.filter_map(|(tool, flaw)| flaw.map(|flaw| (tool, flaw))).collect()
    });
    if flaws.is_empty() {
        return Ok(());
    }
    for (tool, flaw) in &flaws {
        shell::say(&format!("missing: {} ({flaw}): apt-get install {}", tool.name, tool.package));
    }
    let hint = if flaws.iter().all(|(tool, _)| tool.kit > Kit::Build) {
        "; `cargo xtask test --fast` runs the tests that need none of them"
    } else {
        ""
    };
    bail!("{} of {} tools are missing{hint}", flaws.len(), needed.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_the_first_number() {
        assert_eq!(first_number("openjdk 17.0.15 2025-04-15\nOpenJDK …"), Some(17));
        assert_eq!(first_number("javac 11.0.2"), Some(11));
        assert_eq!(first_number("java"), None);
    }

    #[test]
    fn what_is_missing_or_too_old_is_named() {
        let absent = tool("absent", &["tidemark-has-no-such-tool"], "none", Kit::Build);
        assert!(absent.flaw().is_some());
        let fails = tool("fails", &["sh", "-c", "exit 3"], "none", Kit::Build);
        assert!(fails.flaw().is_some_and(|flaw| flaw.contains("exit status: 3")));
        let old = tool("old", &["sh", "-c", "echo java 11.0.2"], "none", Kit::Build).at_least(17);
        assert!(old.flaw().is_some_and(|flaw| flaw.contains("java 11.0.2")));
    }
}
