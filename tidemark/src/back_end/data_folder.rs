//! The folder of the embedded back ends. Read access to it is access to every order and every command.

use std::fs::{DirBuilder, Permissions};
use std::io::Result;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use anyhow::bail;
use log::embedded::LOCK_FILE;
use rustix::process::geteuid;

/// Folder in which a restore makes its files, in the data folder.
pub(crate) const RESTORE_STAGING: &str = "restore.part";
/// Folder in which an import makes its files, in the data folder.
pub(crate) const IMPORT_STAGING: &str = "import.part";
/// Mode of the folder. SQLite creates files as the umask allows, so the mode of the folder protects them.
const OWNER_ONLY: u32 = 0o700;
/// Permission bits of others. The group's bits are not checked: a backup program may read by them.
const OTHERS: u32 = 0o007;

/// Creates the folder, closed to others. An existing folder keeps its mode, with a warning if it is open: a file system
/// may have no modes, and an operator may have set the mode for a reason.
pub(crate) fn prepare(dir: &Path) -> Result<()> {
    if !dir.exists() {
        if let Some(parent) = dir.parent() {
            std::fs::create_dir_all(parent)?;
        }
        return DirBuilder::new().recursive(true).mode(OWNER_ONLY).create(dir);
    }
    if is_open(&std::fs::metadata(dir)?.permissions()) {
        tracing::warn!(
            "other users of this machine can open {dir}, which has every order: run `chmod 700 {dir}`",
            dir = dir.display()
        );
    }
    Ok(())
}

/// Gives files that a command made in the folder to its owner. The service could not open those that root made.
pub(crate) fn hand_over(dir: &Path, files: &[&str]) -> Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let owner = std::fs::metadata(dir)?;
    let files = files.iter().chain(&[LOCK_FILE]).map(|file| dir.join(file));
    files
        .filter(|file| file.exists())
        .try_for_each(|file| lchown(file, Some(owner.uid()), Some(owner.gid())))
}

/// Checks that no restore or import was interrupted: after one, files may be missing, and a start would create empty
/// ones.
///
/// # Errors
/// A restore or an import was interrupted.
pub(crate) fn check_complete(data: &Path) -> anyhow::Result<()> {
    for (name, command) in [(RESTORE_STAGING, "restore"), (IMPORT_STAGING, "import")] {
        let staging = data.join(name);
        if staging.exists() {
            bail!(
                "{} is left of a run of `tidemark {command}` that was interrupted: run `tidemark {command}` again",
                staging.display()
            );
        }
    }
    Ok(())
}

fn is_open(permissions: &Permissions) -> bool {
    permissions.mode() & OTHERS != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_closed_and_left_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("srv/shop/data");
        let mode = |of: &Path| std::fs::metadata(of).unwrap().permissions().mode() & 0o777;
        prepare(&dir).unwrap();
        assert_eq!(mode(&dir), OWNER_ONLY);
        for (given, open) in [(0o700, false), (0o750, false), (0o755, true), (0o701, true)] {
            std::fs::set_permissions(&dir, Permissions::from_mode(given)).unwrap();
            prepare(&dir).unwrap();
            assert_eq!(mode(&dir), given);
            assert_eq!(is_open(&std::fs::metadata(&dir).unwrap().permissions()), open, "{given:o}");
        }
    }
}
