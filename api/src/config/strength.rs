//! Strength of secrets, by an estimate of the required guesses.

use std::collections::BTreeSet;

use runtime::config::Reader;
use schemas::Secret;

/// Minimum estimate for a signing key, in bits: with one signature, an attacker can try candidates offline at any rate.
pub(super) const SIGNING_BITS_MIN: usize = 128;
/// Minimum estimate for an operator's secret, in bits: trying 100,000 a second takes 350 years.
pub(super) const ADMIN_BITS_MIN: usize = 50;
/// Estimate of a word, in tenths of a bit: one of some ten thousand.
const WORD: usize = 130;
const WORD_LETTERS_MIN: usize = 4;
/// Length of a block of characters: random text has no two equal blocks.
const BLOCK: usize = 8;

/// Reports a secret that is easy to guess. A missing secret was reported before.
pub(super) fn check(section: &Reader, key: &str, secret: &Secret, bits_min: usize) {
    if let Some(problem) = problem(secret, bits_min) {
        section.problem(key, &problem);
    }
}

/// Problem of a secret that is easy to guess; `None` if it is random or long enough, and for one that is empty or not
/// UTF-8.
pub(super) fn problem(secret: &Secret, bits_min: usize) -> Option<String> {
    let text = std::str::from_utf8(secret.expose()).ok().filter(|text| !text.is_empty())?;
    (!is_drawn(text) && bits(text) < bits_min).then(|| {
        format!(
            "is too easy to guess (below {bits_min} bits): draw one at random, such as by `openssl rand -base64 32`"
        )
    })
}

/// `true` if a text has the form of 16 random bytes or more, in hex, base32 or base64.
fn is_drawn(secret: &str) -> bool {
    let (bytes, length) = (secret.as_bytes(), secret.len());
    let count = |is: fn(&u8) -> bool| bytes.iter().filter(|byte| is(byte)).count();
    let [digits, upper, lower] =
        [u8::is_ascii_digit, u8::is_ascii_uppercase, u8::is_ascii_lowercase].map(count);
    let kind =
        |byte: &u8| (byte.is_ascii_digit(), byte.is_ascii_uppercase(), byte.is_ascii_lowercase());
    let changes = bytes.windows(2).filter(|two| kind(&two[0]) != kind(&two[1])).count();
    let has_form = match alphabet(secret) {
        16 => length >= 32 && digits > 0 && digits < length,
        32 => length >= 26 && digits > 0,
        62 | 64 => {
            let others = count(|byte| b"+/-_=".contains(byte));
            let is_whole = digits + upper + lower + others == length;
            // 32 bytes may have no digit in base64.
            let is_mixed = upper.min(lower) > 0 && (digits > 0 || length >= 40);
            is_whole && length >= 22 && is_mixed && 3 * changes >= length
        }
        _ => false,
    };
    let distinct = bytes.iter().collect::<BTreeSet<_>>().len();
    let mut blocks = BTreeSet::new();
    has_form && distinct >= 8 && bytes.windows(BLOCK).all(|block| blocks.insert(block))
}

/// Estimate of the guesses that a text not drawn at random takes, in bits. Four or more letters in a row count as one
/// word, in any case. Repetitions and separators of words count nothing; few distinct characters count less.
fn bits(secret: &str) -> usize {
    let text: Vec<char> = secret.chars().map(|c| c.to_ascii_lowercase()).collect();
    let distinct = text.iter().collect::<BTreeSet<_>>().len() as u64;
    // Estimate for each character, in tenths of a bit.
    let each = alphabet(secret).min(2 * distinct).max(1).pow(10).ilog2() as usize;
    let is_repeated = |at: usize| {
        let block = (at + 1).checked_sub(BLOCK).map(|start| &text[start..=at]);
        block.is_some_and(|block| text[..at].windows(BLOCK).any(|earlier| earlier == block))
    };
    let mut words = BTreeSet::new();
    let (mut tenths, mut at) = (0, 0);
    while at < text.len() {
        let letters = text[at..].iter().take_while(|c| c.is_alphabetic()).count();
        if letters < WORD_LETTERS_MIN {
            let plain = at..at + letters.max(1);
            tenths += each * plain.clone().filter(|at| !is_repeated(*at)).count();
            at = plain.end;
            continue;
        }
        tenths += if words.insert(&text[at..at + letters]) { WORD } else { 0 };
        at += letters;
        at += usize::from(text.get(at).is_some_and(|c| !c.is_alphanumeric()));
    }
    tenths / 10
}

/// Size of the smallest usual alphabet that has all characters; 64 if none has.
fn alphabet(secret: &str) -> u64 {
    let all = |is: fn(char) -> bool| secret.chars().all(is);
    if all(|c| c.is_ascii_digit()) {
        10
    } else if all(|c| matches!(c, '0'..='9' | 'a'..='f'))
        || all(|c| matches!(c, '0'..='9' | 'A'..='F'))
    {
        16
    } else if all(|c| matches!(c, 'A'..='Z' | '2'..='7' | '=')) {
        32
    } else if all(|c| matches!(c, '0'..='9' | 'a'..='z')) {
        36
    } else if all(|c| c.is_ascii_alphanumeric()) {
        62
    } else {
        64
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use sha2::{Digest as _, Sha256};

    use super::*;

    fn signs(secret: &str) -> bool {
        problem(&Secret::new(secret), SIGNING_BITS_MIN).is_none()
    }

    #[test]
    fn operators_secrets_resist_guesses_online() {
        assert_eq!(problem(&Secret::new(""), ADMIN_BITS_MIN), None, "reported as missing");
        for (secret, is_strong) in [
            ("admin", false),
            ("admin-secret", false),
            ("Password1234", false),
            ("tidemark-admin-2026", false),
            ("12345678901234", false),
            ("k7Qx2m9V4wT5", true),
            ("correct-horse-battery-staple", true),
        ] {
            let found = problem(&Secret::new(secret), ADMIN_BITS_MIN);
            assert_eq!(found.is_none(), is_strong, "{secret}: {} bits", bits(secret));
        }
    }

    #[test]
    fn only_long_random_secrets_are_strong() {
        assert_eq!(bits(&"abcd"[..WORD_LETTERS_MIN]), WORD / 10);
        for (secret, is_strong) in [
            ("aaaaaaaaaaaa", false),
            ("coffee-shop-2026", false),
            ("coffee-shop-coffee-shop-coffee-shop-coffee-shop-2026", false),
            ("COFFEE-SHOP-2026-COFFEE-SHOP-2026", false),
            ("CHANGE-ME-CHANGE-ME-CHANGE-ME-CHANGE-ME", false),
            ("YOUR_MERCHANT_SECRET_HERE_32_CHARS", false),
            ("CORRECTHORSEBATTERYSTAPLECOFFEE", false),
            ("correct-horse-battery-staple-coffee-house", false),
            ("CorrectHorseBatteryStapleCoffee", false),
            ("aBaBaBaBaBaBaBaBaBaBaBaBaBaBaBaBaBaBaBaB", false),
            ("1234567890123456789012345678901234567890", false),
            ("0123456789ABCDEF0123456789ABCDEF", false),
            ("0123456789", false),
            ("3f9c0b7d12e8", false),
            // 16 and 32 bytes in hex, in base64 and its form for URLs, and 20 in base32.
            ("3f9c0b7d12e84a56b1c0d9e8f7a65432", true),
            ("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", true),
            ("pXz1mQ4Tn8eYk2VbRw7sLg==", true),
            ("b1JtT3k6V2Q5c0xuN1pqWGVmUzJhR4hLq0vYw3KdTzA=", true),
            ("7ryVt-2mKf_Q9wLc4XzPn8", true),
            ("MZXW6YTBOI2DGNBVGY3TQOJQMFRGGZDF", true),
            (
                "one-tree-under-seven-blue-roofs-whose-clock-never-knew-rain-some-autumn-morning",
                true,
            ),
        ] {
            assert_eq!(signs(secret), is_strong, "{secret}: {} bits", bits(secret));
        }
    }

    /// Secrets drawn as the problem advises are accepted.
    #[test]
    fn drawn_secrets_are_accepted() {
        for number in 0..2_000_u64 {
            let digest = Sha256::digest(number.to_be_bytes());
            assert!(signs(&STANDARD.encode(digest)), "{number}");
            let hex: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(signs(&hex), "{number}");
        }
    }
}
