//! Service-Signature (spec 5.1, 5.3) and the signature of checkout links: make and verify. Numbers that only the
//! holder of the merchant's secret can predict.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::{
    GeneralPurpose, GeneralPurposeConfig, STANDARD, URL_SAFE_NO_PAD,
};
use base64::{alphabet, engine::DecodePaddingMode};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::binary::Binary;
use crate::{Blockchain, OrderId, OrderStatus, Secret, Stablecoin, UnixSeconds};

/// Maximum seconds by which a timestamp may lie in the past or in the future.
pub const SIGNATURE_AGE_MAX: i64 = 300;

/// Reads padded and unpadded base64: both are in use among merchants.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reason why a signature is rejected. It is for the log: a caller gets one text for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("signature header is not <timestamp>.<base64>")]
    Malformed,
    /// More than [`SIGNATURE_AGE_MAX`] away from now, or a link past its time.
    #[error("signature timestamp is out of range")]
    Expired,
    /// Made for other data, or with another key.
    #[error("signature does not match")]
    Mismatch,
}

/// A signature of a checkout link, from its query: `exp` and `sig`.
#[derive(Debug, Clone, Copy)]
pub struct CheckoutSignature<'a> {
    /// Expiry time of the link.
    pub expires_at: UnixSeconds,
    /// Unpadded base64url of the MAC.
    pub signature: &'a str,
}

/// Sixteen numbers below 65,536 for an order and a coin on a chain, made by [`draw_digits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draws(pub [u8; 32]);

impl Draws {
    /// Number of draws.
    pub const COUNT: usize = 16;

    /// The number at a position; positions repeat after [`Draws::COUNT`].
    #[must_use]
    pub fn get(&self, position: usize) -> u16 {
        let (pairs, _) = self.0.as_chunks();
        u16::from_le_bytes(pairs[position % Self::COUNT])
    }
}

impl Binary for Draws {
    const WHAT: &'static str = "32 bytes of draws";
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.0)
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

fn mac(secret: &Secret, parts: &[&[u8]]) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose()).ok()?;
    parts.iter().for_each(|part| mac.update(part));
    Some(mac)
}

fn digest(secret: &Secret, parts: &[&[u8]]) -> Vec<u8> {
    // HMAC takes keys of any length, so there is always a MAC.
    mac(secret, parts).map(|mac| mac.finalize().into_bytes().to_vec()).unwrap_or_default()
}

/// Verifies with any of the secrets. `hmac` compares in constant time; every secret is tried, so that
/// timing does not show which one fits.
fn verify(secrets: &[Secret], parts: &[&[u8]], signature: &[u8]) -> Result<(), SignatureError> {
    let fits = secrets
        .iter()
        .filter(|secret| mac(secret, parts).is_some_and(|mac| mac.verify_slice(signature).is_ok()))
        .count();
    if fits > 0 { Ok(()) } else { Err(SignatureError::Mismatch) }
}

/// The value of `Service-Signature` for a body: `<timestamp>.<padded base64>` (spec 5.1.2).
#[must_use]
pub fn sign_service(secret: &Secret, timestamp: UnixSeconds, body: &[u8]) -> String {
    let time = timestamp.to_string();
    let digest = digest(secret, &[time.as_bytes(), b".", body]);
    format!("{time}.{}", STANDARD.encode(digest))
}

/// The value of `webhook-signature` as Standard Webhooks has it: `v1,<padded base64>` for each secret, with
/// a space between. The key is the secret's bytes: libraries of that standard take it as `whsec_` and its base64.
#[must_use]
pub fn sign_standard<'a>(
    secrets: impl IntoIterator<Item = &'a Secret>,
    id: &str,
    timestamp: UnixSeconds,
    body: &[u8],
) -> String {
    let time = timestamp.to_string();
    let parts = [id.as_bytes(), b".", time.as_bytes(), b".", body];
    let sign = |secret| format!("v1,{}", STANDARD.encode(digest(secret, &parts)));
    secrets.into_iter().map(sign).collect::<Vec<_>>().join(" ")
}

/// Checks `Service-Signature` against the exact bytes of a body, with any of the given secrets (two
/// during rotation).
///
/// # Errors
/// [`SignatureError`]; all of them are answered as a mismatch (spec 7.1).
pub fn verify_service(
    secrets: &[Secret],
    header: &str,
    body: &[u8],
    now: UnixSeconds,
) -> Result<(), SignatureError> {
    let (time, signature) = read_service(header, now)?;
    verify(secrets, &[time.as_bytes(), b".", body], &signature)
}

/// Checks `Service-Signature` without the body: its form, and that its time is not more than five
/// minutes off.
///
/// # Errors
/// [`SignatureError`], but never a mismatch.
pub fn check_service_header(header: &str, now: UnixSeconds) -> Result<(), SignatureError> {
    read_service(header, now).map(drop)
}

/// The time as it was signed, and the MAC.
fn read_service(header: &str, now: UnixSeconds) -> Result<(&str, Vec<u8>), SignatureError> {
    let (time, encoded) = header.split_once('.').ok_or(SignatureError::Malformed)?;
    if time.is_empty() || !time.bytes().all(|b| b.is_ascii_digit()) {
        return Err(SignatureError::Malformed);
    }
    let timestamp: i64 = time.parse().map_err(|_| SignatureError::Malformed)?;
    let signature = LENIENT.decode(encoded).map_err(|_| SignatureError::Malformed)?;
    if now.0.abs_diff(timestamp) > SIGNATURE_AGE_MAX.unsigned_abs() {
        return Err(SignatureError::Expired);
    }
    Ok((time, signature))
}

fn checkout_text(order: OrderId, expires_at: UnixSeconds) -> String {
    format!("checkout.v1.{order}.{expires_at}")
}

/// The `sig` of a checkout link: binds it to one order and an expiry time only.
pub fn sign_checkout(secret: &Secret, order: OrderId, expires_at: UnixSeconds) -> String {
    URL_SAFE_NO_PAD.encode(digest(secret, &[checkout_text(order, expires_at).as_bytes()]))
}

/// MAC that proves an order's status at a time, for the page that its customer returns to.
pub fn sign_return(
    secret: &Secret,
    order: OrderId,
    status: OrderStatus,
    time: UnixSeconds,
) -> String {
    let text = format!("return.v1.{order}.{status}.{time}");
    URL_SAFE_NO_PAD.encode(digest(secret, &[text.as_bytes()]))
}

/// Returns the pseudorandom numbers that choose the distinguishing digits of an order's amount, for a coin on a
/// chain. A third party that creates orders cannot predict them.
pub fn draw_digits(
    secret: &Secret,
    order: OrderId,
    blockchain: Blockchain,
    stablecoin: Stablecoin,
) -> Draws {
    let text = format!("amounts.v1.{order}.{blockchain}.{stablecoin}");
    Draws(digest(secret, &[text.as_bytes()]).try_into().unwrap_or_default())
}

/// Checks that a checkout link is for this order and not expired.
pub fn verify_checkout(
    secrets: &[Secret],
    order: OrderId,
    given: CheckoutSignature<'_>,
    now: UnixSeconds,
) -> Result<(), SignatureError> {
    let signature =
        URL_SAFE_NO_PAD.decode(given.signature).map_err(|_| SignatureError::Malformed)?;
    verify(secrets, &[checkout_text(order, given.expires_at).as_bytes()], &signature)?;
    if now > given.expires_at { Err(SignatureError::Expired) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

    /// `printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac whsec -binary | base64`
    const VECTOR: &str = "1700000000.itN7oVYEiuDgpVM8dc3yb+6IsH+Ty1fuTICtsFMBIDI=";

    fn secrets() -> [Secret; 2] {
        [Secret::new("new"), Secret::new("whsec")]
    }

    #[test]
    fn vector_made_by_openssl() {
        assert_eq!(sign_service(&Secret::new("whsec"), NOW, b"{\"a\":1}"), VECTOR);
        assert_eq!(verify_service(&secrets(), VECTOR, b"{\"a\":1}", NOW), Ok(()));
        let unpadded = VECTOR.trim_end_matches('=');
        assert_eq!(verify_service(&secrets(), unpadded, b"{\"a\":1}", NOW), Ok(()));
    }

    /// `printf 'msg_1.1700000000.{"a":1}' | openssl dgst -sha256 -hmac new -binary | base64`, then with `whsec`.
    #[test]
    fn standard_vectors_made_by_openssl() {
        let found = sign_standard(&secrets(), "msg_1", NOW, b"{\"a\":1}");
        let expected = "v1,OXEuIJqYuImh15pXKD2hejsN8azn09VQ9JhdYcq9wFc= \
                        v1,xNlSYJ77uI+sVM7nyJPA2eQWtUBZhiURjpbI/2q392I=";
        assert_eq!(found, expected);
    }

    #[test]
    fn anything_else_is_refused() {
        use SignatureError::{Expired, Mismatch};
        let check = |header: &str, body: &[u8], now| verify_service(&secrets(), header, body, now);
        assert_eq!(check(VECTOR, b"{\"a\":2}", NOW), Err(Mismatch));
        assert_eq!(check(VECTOR, b"{\"a\":1}", NOW.plus(300)), Ok(()));
        assert_eq!(check(VECTOR, b"{\"a\":1}", NOW.plus(301)), Err(Expired));
        assert_eq!(check(VECTOR, b"{\"a\":1}", NOW.plus(-301)), Err(Expired));
        assert_eq!(check("1700000000.", b"", NOW), Err(Mismatch));
        for header in ["", ".", "1700000000", "-1.AAAA", "+1.AAAA", "1700000000.!", "x.AAAA"] {
            assert_eq!(check(header, b"", NOW), Err(SignatureError::Malformed), "{header:?}");
        }
        assert_eq!(verify_service(&[], VECTOR, b"{\"a\":1}", NOW), Err(Mismatch));
    }

    #[test]
    fn a_checkout_link_opens_its_own_order_only() {
        let [secret, other] = secrets();
        let (mine, theirs) = (OrderId(uuid::Uuid::from_u128(1)), OrderId(uuid::Uuid::from_u128(2)));
        let sig = sign_checkout(&secret, mine, NOW);
        let given = CheckoutSignature { expires_at: NOW, signature: &sig };
        let check =
            |order, given, now| verify_checkout(std::slice::from_ref(&secret), order, given, now);
        assert_eq!(check(mine, given, NOW), Ok(()));
        assert_eq!(check(theirs, given, NOW), Err(SignatureError::Mismatch));
        assert_eq!(check(mine, given, NOW.plus(1)), Err(SignatureError::Expired));
        let longer = CheckoutSignature { expires_at: NOW.plus(9), ..given };
        assert_eq!(check(mine, longer, NOW), Err(SignatureError::Mismatch));
        assert_eq!(verify_checkout(&[other], mine, given, NOW), Err(SignatureError::Mismatch));
    }
}
