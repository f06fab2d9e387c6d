//! `cargo xtask release VERSION` and `cargo xtask pack`, as `docs/internals/releasing.md` has them.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use self::Step::{Check, Commit, Freeze, Pack, Tag, Test, Write};
use crate::test::Scope;
use crate::{check, shell, test};

const CHANGELOG: &str = "CHANGELOG.md";
/// Start of the subject of a release's commit.
const SUBJECT: &str = "release: ";
const RELEASED: &str = "schemas/released";
const READABLE: &str = "schemas/released/readable.txt";
const TEST_SCHEMAS: [&str; 4] = ["test", "--package", "tidemark-schemas", "--no-fail-fast"];
/// Files with the version. The tests of [`Freeze`] update `Cargo.lock`.
const VERSIONED: [&str; 4] =
    ["Cargo.toml", "docs/openapi.json", "docs/merchant/admin.md", "docs/merchant/webhooks.md"];
const FORMS: [&str; 4] =
    ["\nversion = \"@\"\n", "\"version\": \"@\"", "\"version\":\"@\"", "tidemark/@\n"];

/// Semantic version without a pre-release, ordered by its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version([u64; 3]);

impl Version {
    fn parse(text: &str) -> Result<Self> {
        let numbers: Vec<_> = text.split('.').map_while(|part| part.parse().ok()).collect();
        let version = <[u64; 3]>::try_from(numbers).ok().map(Self);
        // Refuses "+1" and "01", which `parse` accepts.
        let version = version.filter(|version| version.to_string() == text);
        version.with_context(|| format!("{text:?} is not a version such as 0.2.0"))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([major, minor, patch]) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// A step of a release; the first failure ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Check,
    Test,
    Write,
    Freeze,
    Commit,
    Tag,
    Pack,
}

fn plan(is_tested: bool) -> Vec<Step> {
    let all = [Check, Test, Write, Freeze, Commit, Tag, Pack];
    all.into_iter().filter(|step| *step != Test || !is_tested).collect()
}

/// Releases this version, but pushes nothing. All problems are reported before anything is changed.
pub(crate) fn run(version: &str, is_tested: bool) -> Result<()> {
    let day = shell::output(Command::new("date").args(["--utc", "+%F"]))?;
    let release = Release { root: shell::root(), version: Version::parse(version)?, day };
    let problems = release.problems()?;
    ensure!(problems.is_empty(), "not released, nothing was changed:\n- {}", problems.join("\n- "));
    for step in plan(is_tested) {
        shell::say(&format!("release {version}: {step:?}"));
        release.perform(step).with_context(|| match step {
            Check | Test => "nothing was changed",
            Write | Freeze | Commit => "nothing is committed; `git restore .` discards the changes",
            Tag => "committed without a tag; `git reset --hard HEAD~1` discards the commit",
            Pack => "commit and tag are made; `cargo xtask pack` repeats this step alone",
        })?;
    }
    Ok(())
}

struct Release {
    root: PathBuf,
    version: Version,
    day: String,
}

impl Release {
    /// Reasons not to release this version from this repository.
    fn problems(&self) -> Result<Vec<String>> {
        let git = |arguments: &[&str]| git(&self.root, arguments);
        let changed = git(&["status", "--porcelain"])?;
        let branch = git(&["branch", "--show-current"])?;
        let is_shallow = git(&["rev-parse", "--is-shallow-repository"])? == "true";
        let (version, present) = (self.version, workspace_version(&self.root)?);
        let mut checks = vec![
            (changed.is_empty(), format!("there are changes without a commit:\n{changed}")),
            (branch == "main", format!("the branch is {branch:?}, not main")),
            (!is_shallow, "a shallow clone lacks tags: git fetch --unshallow --tags".to_owned()),
            (version >= present, format!("{version} is older than Cargo.toml's {present}")),
        ];
        let tags = git(&["tag", "--list", "v*"])?;
        let tags = tags.lines().filter_map(|tag| Version::parse(tag.strip_prefix('v')?).ok());
        if let Some(last) = tags.max() {
            checks.push((version > last, format!("{version} is not newer than the tag v{last}")));
            // Files of new versions and records may be added, so added files do not count.
            let tag = format!("v{last}");
            let edited = git(&["diff", "--name-only", "--diff-filter=a", &tag, "--", RELEASED])?;
            let problem = format!("both will run side by side: restore from {tag}:\n{edited}");
            checks.push((edited.is_empty(), problem));
        }
        if let Err(error) = dated(&read(&self.root, CHANGELOG)?, version, &self.day) {
            checks.push((false, error.to_string()));
        }
        Ok(checks.into_iter().filter(|(holds, _)| !holds).map(|(_, problem)| problem).collect())
    }

    fn perform(&self, step: Step) -> Result<()> {
        let git = |arguments: &[&str]| git(&self.root, arguments).map(drop);
        let tag = format!("v{}", self.version);
        let subject = format!("{SUBJECT}{}", self.version);
        match step {
            Check => check::run(),
            Test => test::run(Scope::All)?.then_some(()).context("a test failed or was skipped"),
            Write => self.write(),
            Freeze => {
                // The test writes a missing file and fails, as the test of the OpenAPI document does; the second run
                // passes.
                fs::remove_file(self.root.join(READABLE)).context(READABLE)?;
                let test = || shell::run(shell::cargo().args(TEST_SCHEMAS));
                test().or_else(|_| test())
            }
            Commit => git(&["commit", "--quiet", "--all", "--message", &subject]),
            Tag => git(&["tag", "--annotate", &tag, "--message", &subject]),
            Pack => pack(),
        }
    }

    fn write(&self) -> Result<()> {
        let (present, new) = (workspace_version(&self.root)?.to_string(), self.version.to_string());
        for file in VERSIONED {
            let mut text = read(&self.root, file)?;
            for form in FORMS {
                text = text.replace(&form.replace('@', &present), &form.replace('@', &new));
            }
            fs::write(self.root.join(file), text).context(file)?;
        }
        let text = dated(&read(&self.root, CHANGELOG)?, self.version, &self.day)?;
        fs::write(self.root.join(CHANGELOG), text).context(CHANGELOG)
    }
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    // A git hook has these set, and they would redirect the command to another repository than the given one.
    command.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE");
    shell::output(command.args(arguments).current_dir(root).stderr(Stdio::inherit()))
}

fn read(root: &Path, file: &str) -> Result<String> {
    fs::read_to_string(root.join(file)).with_context(|| file.to_owned())
}

fn workspace_version(root: &Path) -> Result<Version> {
    let text = read(root, "Cargo.toml")?;
    let after =
        |line: &str| Some(Version::parse(line.strip_prefix("version = \"")?.strip_suffix('"')?));
    text.lines().find_map(after).context("Cargo.toml has no line `version = …`")?
}

/// Titles and texts of the changelog's sections, newest first.
fn sections(changelog: &str) -> Vec<(&str, &str)> {
    let parts = changelog.split("\n## ").skip(1);
    parts.map(|part| part.split_once('\n').unwrap_or((part, ""))).collect()
}

/// The changelog with its unreleased section named for a version, below a new empty one.
fn dated(changelog: &str, version: Version, day: &str) -> Result<String> {
    let sections = sections(changelog);
    let (first, entries) = sections.first().context("CHANGELOG.md has no sections")?;
    let has_entries = *first == "Unreleased" && !entries.trim().is_empty();
    ensure!(has_entries, "{CHANGELOG} has no entries below a first section `## Unreleased`");
    let is_old = sections.iter().any(|(title, _)| title.starts_with(&format!("{version} - ")));
    ensure!(!is_old, "{CHANGELOG} has a section {version} already");
    let heading = "\n## Unreleased\n";
    Ok(changelog.replacen(heading, &format!("{heading}\n## {version} - {day}\n"), 1))
}

/// Builds the executable of the tag at HEAD and packs it into `target/release/package`.
pub(crate) fn pack() -> Result<()> {
    let root = shell::root();
    let tag = format!("v{}", workspace_version(&root)?);
    let describe = ["describe", "--tags", "--exact-match", "--dirty", "--match", &tag];
    let is_tagged = git(&root, &describe).is_ok_and(|state| state == tag);
    ensure!(is_tagged, "the tree is not {tag}: check that tag out, without changes");
    let target = shell::output(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let executable = test::release()?;
    let name = format!("tidemark-{}-{target}", &tag[1..]);
    archive(&root, &executable, &executable.with_file_name("package"), &name)
}

/// Packs an executable, its debug lines and the documents, with a checksum beside the archive.
fn archive(root: &Path, executable: &Path, folder: &Path, name: &str) -> Result<()> {
    drop(fs::remove_dir_all(folder));
    let content = folder.join(name);
    fs::create_dir_all(&content)?;
    // A backtrace has line numbers only if this file is beside the executable.
    let debug = content.join("tidemark.debug");
    let link = format!("--add-gnu-debuglink={}", debug.display());
    let objcopy = |options: &[&str], made: &Path| {
        shell::run(Command::new("objcopy").args(options).arg(executable).arg(made))
    };
    objcopy(&["--only-keep-debug"], &debug)?;
    objcopy(&["--strip-debug", &link], &content.join("tidemark"))?;
    for document in ["LICENSE", "README.md", CHANGELOG] {
        fs::copy(root.join(document), content.join(document)).context(document)?;
    }
    // Reproducible archive: no owner, no clock.
    let time = git(root, &["log", "-1", "--format=--mtime=@%ct"])?;
    let (gzip, file) = ("--use-compress-program=gzip --no-name", format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", &time]);
    shell::run(tar.args([gzip, "--file", &file, name]).current_dir(folder))?;
    let sum = shell::output(Command::new("sha256sum").arg(&file).current_dir(folder))?;
    fs::write(folder.join("SHA256SUMS"), sum + "\n")?;
    shell::print(&folder.join(file).display().to_string());
    Ok(())
}

#[cfg(test)]
mod tests;
