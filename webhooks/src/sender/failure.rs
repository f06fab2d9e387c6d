//! Reasons why an attempt brought no status: a refused address, the receiver's failure, or our own.

use std::error::Error as StdError;
use std::io::{Error as IoError, ErrorKind};

use rustix::io::Errno;
use rustls::{CertificateError, Error as TlsError};
use schemas::{AttemptOutcome, Refusal};

use super::shown;
use crate::guard::NotResolved;

/// Explanation of `UnknownIssuer`. Browsers complete such a chain themselves.
const UNKNOWN_ISSUER: &str = "incomplete chain (the receiver does not send its intermediate certificate), \
    or an authority that is not trusted (webhooks.ca_file)";

/// An attempt that brought no status.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) outcome: AttemptOutcome,
    pub(super) cause: String,
}

impl Failure {
    /// Classifies a failed request. With a proxy only the proxy is called, so its failure is ours.
    pub(super) fn of(error: reqwest::Error, is_proxied: bool) -> Self {
        // The URL may hold secrets of the merchant; the causes do not.
        let error = error.without_url();
        let is_ours = |source| is_local(source) || (is_proxied && is_unreachable(source));
        let outcome = if sources(&error).any(|source| source.is::<Refusal>()) {
            AttemptOutcome::Forbidden
        } else if error.is_connect() && sources(&error).any(is_ours) {
            AttemptOutcome::Local
        } else if error.is_connect() {
            AttemptOutcome::Connect
        } else if error.is_timeout() {
            AttemptOutcome::Timeout
        } else {
            AttemptOutcome::Protocol
        };
        let mut cause = error.to_string();
        for source in sources(&error) {
            cause = format!("{cause}: {source}");
        }
        if sources(&error).any(is_of_unknown_issuer) {
            cause = format!("{cause}: {UNKNOWN_ISSUER}");
        }
        // Shortened, because a cause may be long: a certificate may name a hundred hosts.
        Self { outcome, cause: shown(cause.as_bytes()) }
    }
}

fn sources(error: &reqwest::Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    std::iter::successors(error.source(), |error| (*error).source())
}

/// `true` if the failure is on this side, not the receiver's.
fn is_local(error: &(dyn StdError + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<NotResolved>() {
        return matches!(error, NotResolved::Local(_));
    }
    error.downcast_ref::<IoError>().is_some_and(|error| {
        let of_kind = matches!(
            error.kind(),
            ErrorKind::AddrNotAvailable
                | ErrorKind::NetworkDown
                | ErrorKind::NetworkUnreachable
                | ErrorKind::OutOfMemory
                | ErrorKind::PermissionDenied
        );
        // These have no stable `ErrorKind`.
        let numbers = [Errno::AFNOSUPPORT, Errno::MFILE, Errno::NFILE, Errno::NOBUFS];
        let raw = error.raw_os_error();
        of_kind || numbers.iter().any(|number| raw == Some(number.raw_os_error()))
    })
}

fn is_of_unknown_issuer(error: &(dyn StdError + 'static)) -> bool {
    // `IoError::source` skips the error that it wraps.
    if let Some(held) = error.downcast_ref::<IoError>().and_then(IoError::get_ref) {
        return is_of_unknown_issuer(held);
    }
    let unknown = TlsError::InvalidCertificate(CertificateError::UnknownIssuer);
    error.downcast_ref::<TlsError>().is_some_and(|error| *error == unknown)
}

/// `true` if nothing answers at the address, or the name could not be resolved.
fn is_unreachable(error: &(dyn StdError + 'static)) -> bool {
    if error.is::<NotResolved>() {
        return true;
    }
    error.downcast_ref::<IoError>().is_some_and(|error| {
        error.raw_os_error().is_some()
            && matches!(
                error.kind(),
                ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::TimedOut
            )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_networks_of_our_own_are_ours() {
        let of = |errno: Errno| IoError::from_raw_os_error(errno.raw_os_error());
        for errno in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NETUNREACH,
            Errno::NETDOWN,
            Errno::ADDRNOTAVAIL,
            Errno::NOBUFS,
            Errno::NOMEM,
            Errno::PERM,
            Errno::ACCESS,
            Errno::AFNOSUPPORT,
        ] {
            assert!(is_local(&of(errno)), "{errno}");
        }
        for errno in [Errno::HOSTUNREACH, Errno::CONNREFUSED, Errno::TIMEDOUT] {
            assert!(!is_local(&of(errno)) && is_unreachable(&of(errno)), "{errno}");
        }
        assert!(!is_local(&of(Errno::CONNRESET)) && !is_unreachable(&of(Errno::CONNRESET)));
        assert!(is_local(&NotResolved::Local(String::new())));
        assert!(!is_local(&NotResolved::Unknown(String::new())));
        assert!(!is_local(&NotResolved::Unanswered(String::new())));
    }
}
