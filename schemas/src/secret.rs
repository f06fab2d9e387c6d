//! A secret that cannot reach a log by accident.

use subtle::ConstantTimeEq;

/// A key or password. `Debug` prints a mask, there is no `Display`, and comparison takes the same
/// time wherever the difference is.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes the bytes as they are.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes, for the one place that needs them (a MAC, a header to send).
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// `true` if `candidate` equals the secret; takes time that depends on lengths alone.
    #[must_use]
    pub fn matches(&self, candidate: &[u8]) -> bool {
        self.0.ct_eq(candidate).into()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each admin request compares secrets. With a slow password hash, this would take minutes.
    #[test]
    fn ten_thousand_comparisons_are_quick() {
        let (secret, begun) = (Secret::new("hunter2"), std::time::Instant::now());
        assert!((0..10_000).all(|_| secret.matches(b"hunter2") && !secret.matches(b"hunter3")));
        assert!(begun.elapsed() < std::time::Duration::from_secs(10));
    }

    #[test]
    fn debug_hides_the_value_and_comparison_is_exact() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?}"), "Secret(***)");
        assert!(secret.matches(b"hunter2"));
        assert!(!secret.matches(b"hunter"));
        assert!(!secret.matches(b"hunter3"));
    }
}
