//! Releases of a repository that the test makes, without the steps that build.

use super::*;

fn version(text: &str) -> Version {
    Version::parse(text).unwrap()
}

#[test]
fn versions_are_ordered_by_their_numbers() {
    assert!(version("0.10.0") > version("0.9.9") && version("1.0.0") > version("0.10.0"));
    for wrong in ["", "1.0", "1.0.0.0", "v1.0.0", "1.0.0-rc.1", "01.0.0", "+1.0.0", "1.0.x"] {
        assert!(Version::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn entries_get_a_version_and_a_date_once() {
    let before = "#\n\n## Unreleased\n\n- One.\n\n## 0.1.0 - 2026-01-01\n\n- Zero.\n";
    let after = before.replace("- One.", "## 0.2.0 - 2026-02-03\n\n- One.");
    assert_eq!(dated(before, version("0.2.0"), "2026-02-03").unwrap(), after);
    for (text, new) in [(&*after, "0.3.0"), (before, "0.1.0"), ("#\n", "0.2.0")] {
        assert!(dated(text, version(new), "2026-02-03").is_err(), "{new}");
    }
}

#[test]
fn nothing_changes_before_all_is_checked() {
    assert_eq!(plan(false), [Check, Test, Write, Freeze, Commit, Tag, Pack]);
    assert_eq!(plan(true), [Check, Write, Freeze, Commit, Tag, Pack]);
}

#[test]
fn a_repository_is_released_once() {
    let folder = std::env::temp_dir().join(format!("tidemark-release-{}", std::process::id()));
    let (root, day) = (folder.join("repository"), "2026-02-03".to_owned());
    let mut release = Release { root: root.clone(), version: version("0.2.0"), day };
    let git = |command: &str| git(&root, &command.split(' ').collect::<Vec<_>>()).unwrap();
    let put = |file: &str, text: &str| {
        fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        fs::write(root.join(file), text).unwrap();
    };
    let commit = || git("add --all") + &git("commit --quiet --message change");
    let order = "schemas/released/order/1.avsc";
    for (file, text) in [
        ("Cargo.toml", "[workspace.package]\nversion = \"0.1.0\"\na = { version = \"0.1.0\" }\n"),
        (CHANGELOG, "#\n\n## Unreleased\n\n- One.\n"),
        ("docs/openapi.json", "{\"version\": \"0.1.0\"}\n"),
        ("docs/merchant/admin.md", "{\"version\":\"0.1.0\"}\n"),
        ("docs/merchant/webhooks.md", "tidemark/0.1.0\n"),
        (order, "first"),
        (READABLE, "order: 1\n"),
    ] {
        put(file, text);
    }
    git("init --quiet --initial-branch main");
    for setting in ["user.name t", "user.email t@t", "commit.gpgSign 0", "tag.gpgSign 0"] {
        git(&format!("config {setting}"));
    }
    commit();
    let problems = |release: &Release, expected: &[&str]| {
        let found = release.problems().unwrap();
        let has = |(found, words): (&String, &&str)| found.contains(words);
        assert!(found.len() == expected.len() && found.iter().zip(expected).all(has), "{found:?}");
    };
    problems(&release, &[]);
    git("switch --quiet --create other");
    put(CHANGELOG, "#\n");
    release.version = version("0.0.9");
    problems(&release, &["without a commit", "\"other\"", "older than Cargo", "no sections"]);
    git("restore .");
    git("switch --quiet main");
    release.version = version("0.2.0");
    [Write, Commit, Tag].into_iter().try_for_each(|step| release.perform(step)).unwrap();
    assert_eq!(git("tag --list --format=%(objecttype):%(*subject)"), "tag:release: 0.2.0");
    let changed = VERSIONED.map(|file| read(&root, file).unwrap()).concat();
    assert_eq!((changed.matches("0.2.0").count(), changed.matches("0.1.0").count()), (4, 1));
    assert_eq!(git("status --porcelain"), "");
    problems(&release, &["not newer than the tag v0.2.0", "no entries"]);
    let (program, packed) = (std::env::current_exe().unwrap(), folder.join("package"));
    archive(&shell::root(), &program, &packed, "x").unwrap();
    let run = |program: &str, arguments: &[&str]| {
        shell::output(Command::new(program).args(arguments).current_dir(&packed)).unwrap()
    };
    let files = "x/ x/CHANGELOG.md x/LICENSE x/README.md x/tidemark x/tidemark.debug";
    assert_eq!(run("tar", &["-tf", "x.tar.gz"]).replace('\n', " "), files);
    assert_eq!(run("sha256sum", &["--check", "SHA256SUMS"]), "x.tar.gz: OK");
    release.version = version("0.3.0");
    put(CHANGELOG, "#\n\n## Unreleased\n\n- Two.\n");
    put("schemas/released/order/2.avsc", "second");
    commit();
    problems(&release, &[]);
    put(READABLE, "order: 2\n");
    put(order, "edited");
    commit();
    problems(&release, &["v0.2.0:\nschemas/released/order/1.avsc\nschemas/released/readable.txt"]);
    fs::remove_dir_all(folder).unwrap();
}

/// Checks commits and not tags: any clone may lack tags, but only a shallow one lacks commits.
#[test]
fn dated_versions_were_released() {
    let root = shell::root();
    let changelog = read(&root, CHANGELOG).unwrap();
    let titles: Vec<_> = sections(&changelog).into_iter().map(|(title, _)| title).collect();
    assert_eq!(titles.first(), Some(&"Unreleased"), "the first section of {CHANGELOG}");
    let is_shallow = git(&root, &["rev-parse", "--is-shallow-repository"]).unwrap() == "true";
    let subjects = git(&root, &["log", "--format=%s"]).unwrap();
    for title in &titles[1..] {
        let version = version(title.split(" - ").next().unwrap());
        let is_released = subjects.lines().any(|s| s == format!("{SUBJECT}{version}"));
        assert!(
            is_shallow || is_released,
            "{CHANGELOG} dates {title}: `cargo xtask release` does that"
        );
    }
}
