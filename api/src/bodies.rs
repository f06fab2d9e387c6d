//! Bounds the memory of bodies before authentication: a signature can be checked only with the whole body.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{Body, Bytes};
use futures_util::StreamExt as _;
use hyper::body::Body as _;
use tokio::sync::Notify;

use crate::error::{Answer, Refusal};
use crate::extract::broken_off;

/// Maximum bytes of a body. Any client can have one read, because a signature is checked against the whole body. An
/// order with the longest texts has 20 KiB.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;
const TOO_LARGE: Refusal = Refusal::BodyTooLarge("64 KiB");
/// Maximum bytes of all bodies that are not verified.
const UNVERIFIED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Unverified bodies of all connections. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unverified(Arc<Mutex<All>>);

#[derive(Debug, Default)]
struct All {
    bytes: usize,
    last: u64,
    /// Bodies by number, the oldest first.
    arriving: BTreeMap<u64, Arriving>,
}

#[derive(Debug)]
struct Arriving {
    bytes: usize,
    /// Notified when the body is given up.
    given_up: Arc<Notify>,
}

/// Entry of one body, until it is verified or refused.
#[derive(Debug)]
pub(crate) struct Held {
    of: Unverified,
    number: u64,
    given_up: Arc<Notify>,
}

impl Unverified {
    /// Reads a body. If all unverified bodies together exceed their limit, the oldest are given up until the rest fits:
    /// honest bodies arrive at once, so an old one is most likely withheld.
    pub(crate) async fn read(&self, body: Body) -> Answer<(Bytes, Held)> {
        let least = usize::try_from(body.size_hint().lower());
        if least.map_or(true, |least| least > BODY_BYTES_MAX) {
            return Err(TOO_LARGE);
        }
        let held = self.begin();
        let mut stream = body.into_data_stream();
        let mut collected = Vec::new();
        loop {
            let part = tokio::select! {
                biased;
                () = held.given_up.notified() => return Err(Refusal::BodyLate),
                part = stream.next() => part,
            };
            match part {
                Some(Ok(part)) if collected.len() + part.len() > BODY_BYTES_MAX => {
                    return Err(TOO_LARGE);
                }
                Some(Ok(part)) => {
                    collected.extend_from_slice(&part);
                    self.arrived(held.number, part.len());
                }
                Some(Err(error)) => return Err(broken_off(&error)),
                None => return Ok((collected.into(), held)),
            }
        }
    }

    fn begin(&self) -> Held {
        let mut all = self.all();
        all.last += 1;
        let (number, given_up) = (all.last, Arc::new(Notify::new()));
        all.arriving.insert(number, Arriving { bytes: 0, given_up: given_up.clone() });
        drop(all);
        Held { of: self.clone(), number, given_up }
    }

    fn arrived(&self, number: u64, bytes: usize) {
        let mut all = self.all();
        if let Some(body) = all.arriving.get_mut(&number) {
            body.bytes += bytes;
            all.bytes += bytes;
        }
        while all.bytes > UNVERIFIED_BYTES_MAX
            && let Some((_, first)) = all.arriving.pop_first()
        {
            all.bytes -= first.bytes;
            first.given_up.notify_one();
        }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut all = self.of.all();
        if let Some(body) = all.arriving.remove(&self.number) {
            all.bytes -= body.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;

    use super::*;

    /// Body that stalls after one part.
    fn withheld() -> Body {
        let part = Ok::<_, Infallible>(Bytes::from(vec![0; BODY_BYTES_MAX]));
        Body::from_stream(stream::iter([part]).chain(stream::pending()))
    }

    #[tokio::test]
    async fn bodies_that_are_withheld_make_room() {
        let bodies = Unverified::default();
        let most = UNVERIFIED_BYTES_MAX / BODY_BYTES_MAX;
        let mut reads: Vec<_> = (0..most)
            .map(|_| {
                let bodies = bodies.clone();
                tokio::spawn(async move { bodies.read(withheld()).await.map(drop) })
            })
            .collect();
        testkit::eventually("all parts", async || {
            (bodies.all().bytes == UNVERIFIED_BYTES_MAX).then_some(())
        })
        .await;
        assert!(reads.iter().all(|read| !read.is_finished()));
        let (body, held) = bodies.read(Body::from(vec![7; BODY_BYTES_MAX])).await.unwrap();
        assert_eq!(body.len(), BODY_BYTES_MAX);
        let is_ended = |read: &tokio::task::JoinHandle<_>| read.is_finished();
        let find = async || reads.iter().position(is_ended);
        let ended = testkit::eventually("a body that is given up", find).await;
        let given_up = reads.remove(ended);
        assert_eq!(given_up.await.unwrap(), Err(Refusal::BodyLate));
        assert_eq!(bodies.all().bytes, UNVERIFIED_BYTES_MAX);
        assert!(!reads.iter().any(is_ended), "one is enough");
        drop(held);
        assert_eq!(bodies.all().bytes, UNVERIFIED_BYTES_MAX - BODY_BYTES_MAX);
        for read in reads {
            read.abort();
            assert!(read.await.is_err());
        }
        let all = bodies.all();
        assert_eq!((all.bytes, all.arriving.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_body_has_a_limit_of_its_own() {
        let bodies = Unverified::default();
        let read = async |body| bodies.read(body).await.map(|(body, _)| body.len());
        assert_eq!(read(Body::from(vec![0; BODY_BYTES_MAX])).await, Ok(BODY_BYTES_MAX));
        let refused = Err(Refusal::BodyTooLarge("64 KiB"));
        assert_eq!(read(Body::from(vec![0; BODY_BYTES_MAX + 1])).await, refused);
        let part = |bytes| Ok::<_, Infallible>(Bytes::from(vec![0; bytes]));
        let parts = stream::iter([BODY_BYTES_MAX, 1].map(part));
        assert_eq!(read(Body::from_stream(parts)).await, refused, "of a length that is not said");
        assert_eq!(bodies.all().bytes, 0);
    }
}
