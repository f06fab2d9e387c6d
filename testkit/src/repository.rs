//! Files of the repository, which tests compare with the code.

use std::path::{Path, PathBuf};

/// Folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Text of a file, by its path in the repository.
pub fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap()
}
