//! Counts that a test binary reports in its closing line.

use std::fmt;
use std::iter::Sum;

/// Numbers of a binary's tests by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
}

impl Counts {
    /// Reads the closing line, such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`, from what a
    /// binary printed. `None` if there is no such line: the binary ended before its tests were complete.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let line = text.lines().rev().find_map(|line| line.strip_prefix("test result: "))?;
        let count = |word: &str| line.split_once(word)?.0.rsplit(' ').next()?.parse().ok();
        let (passed, failed) = (count(" passed")?, count(" failed")?);
        Some(Self { passed, failed, skipped: count(" ignored")? })
    }

    pub(super) fn total(self) -> usize {
        self.passed + self.failed + self.skipped
    }

    /// A test that is skipped is a failure, and so is a run without tests.
    pub(super) fn is_success(self) -> bool {
        self.passed > 0 && self.failed == 0 && self.skipped == 0
    }
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, counts| Self {
            passed: sum.passed + counts.passed,
            failed: sum.failed + counts.failed,
            skipped: sum.skipped + counts.skipped,
        })
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_is_counted() {
        let text = "test a ... ok\n\ntest result: FAILED. 2 passed; 5 failed; 1 ignored; 0 measured; \
                    7 filtered out; finished in 0.02s\n\n";
        let counts = Counts::parse(text).unwrap();
        assert_eq!(counts, Counts { passed: 2, failed: 5, skipped: 1 });
        assert_eq!(counts.to_string(), "2 passed, 5 failed, 1 skipped");
        assert_eq!(Counts::parse("running 2 tests\ntest a ... ok\n"), None);
    }

    #[test]
    fn only_tests_that_all_ran_and_passed_are_a_success() {
        let counts = |passed, failed, skipped| Counts { passed, failed, skipped };
        assert!(counts(1, 0, 0).is_success());
        for flawed in [counts(0, 0, 0), counts(1, 1, 0), counts(1, 0, 1)] {
            assert!(!flawed.is_success(), "{flawed}");
        }
    }
}
