//! Accepts connections and serves them: HTTP/1.1 alone, with a bound on everything that a client may leave open or
//! unfinished (decision 49).

mod progress;
mod stream;

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::{CONNECTION, TRANSFER_ENCODING};
use axum::http::{HeaderMap, HeaderValue};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use runtime::Clock;
use runtime::config::{Connections, Network};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) use progress::BodyLate;
use progress::{Arriving, Leaving, Progress};
use stream::Timed;

use crate::client::{Client, Entrance, is_trusted};
use crate::machine::occasions::Occasions;
use crate::metrics;

/// Maximum bytes of a request's head, path and headers together: twice the usual limit of proxies.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Wait at an orderly stop for a request that the client has just sent: it is answered as the last of its connection.
const LAST_REQUEST_GRACE: Duration = Duration::from_millis(100);
/// Maximum delay of an orderly stop by a request that has only partly arrived.
const HALF_SENT_GRACE: Duration = Duration::from_secs(1);
/// Pause after the system refused to accept: usually no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Header to which each proxy appends the address that it saw.
const FORWARDED_FOR: &str = "x-forwarded-for";
/// Answer to a client over the connection limit.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 30\r\n\r\nthe service is busy, try again";

/// Limits and state of the connections to one listening address.
#[derive(Clone)]
pub(crate) struct Listener {
    entrance: Entrance,
    bounds: Connections,
    /// One permit per connection that may be open.
    places: Arc<Semaphore>,
    proxies: Arc<[Network]>,
    /// Requests forwarded by untrusted peers since the last log line.
    unbelieved: Arc<Occasions>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
}

impl Listener {
    pub(crate) fn new(
        entrance: Entrance,
        bounds: Connections,
        proxies: Arc<[Network]>,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
    ) -> Self {
        let places = Semaphore::new(usize::try_from(bounds.max).unwrap_or(Semaphore::MAX_PERMITS));
        let (places, unbelieved) = (Arc::new(places), Arc::default());
        Self { entrance, bounds, places, proxies, unbelieved, clock, stop }
    }

    /// Serves until the stop, then completes requests in flight within the grace period.
    pub(crate) async fn serve(&self, socket: TcpListener, router: Router) {
        let router = TowerToHyperService::new(router);
        let mut is_refused = false;
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                () = self.stop.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    is_refused = false;
                    self.admit(stream, peer.ip(), &router);
                }
                Err(error) if is_of_one_client(&error) => {}
                Err(error) => {
                    if !is_refused {
                        tracing::warn!(%error, "the api cannot accept connections, and tries again");
                    }
                    is_refused = true;
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(socket);
        // Every connection releases its permit within the grace period.
        drop(self.places.acquire_many(self.bounds.max).await);
    }

    fn admit(&self, stream: TcpStream, peer: IpAddr, router: &TowerToHyperService<Router>) {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            metrics::connection_refused();
            // Fits without waiting: the send buffer of a new connection is empty.
            drop(stream.try_write(FULL));
            return;
        };
        // A failure to set TCP_NODELAY only delays answers, so it is ignored.
        drop(stream.set_nodelay(true));
        let connection = self.clone().connection(stream, peer, router.clone(), place);
        tokio::spawn(connection);
    }

    fn client(&self, peer: IpAddr, headers: &HeaderMap) -> Client {
        let forwarded = headers.get_all(FORWARDED_FOR).iter();
        if headers.contains_key(FORWARDED_FOR)
            && !is_trusted(&self.proxies, peer)
            && let Some(count) = self.unbelieved.occurred(self.clock.now().seconds())
        {
            tracing::warn!(
                count,
                client.address = %peer,
                "X-Forwarded-For of a client that server.trusted_proxies does not name: if it is a proxy, all its \
                 clients share one limit"
            );
        }
        // A header that is not text counts as empty, so that no address before it is trusted.
        let forwarded = forwarded.map(|value| value.to_str().unwrap_or_default());
        Client::of(self.entrance, peer, forwarded, &self.proxies)
    }

    async fn connection(
        self,
        stream: TcpStream,
        peer: IpAddr,
        router: TowerToHyperService<Router>,
        _place: OwnedSemaphorePermit,
    ) {
        let _open = metrics::ConnectionOpen::new();
        let progress = Arc::new(Progress::new(self.bounds));
        let stream = Timed::new(stream, progress.clone(), self.bounds);
        let service = service_fn(|mut request: Request<Incoming>| {
            let client = self.client(peer, request.headers());
            request.extensions_mut().insert(client);
            let guard = Progress::begin(&progress);
            // Request smuggling: a proxy may read an ambiguous length differently, so bytes after the body must not
            // become a request.
            let is_last = request.headers().contains_key(TRANSFER_ENCODING);
            let limit = self.bounds.body_timeout;
            let stop = &self.stop;
            let answer = router.call(request.map(|body| Arriving::new(body, &progress, limit)));
            async move {
                let mut answer = answer.await?;
                if is_last || stop.is_cancelled() {
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(answer.map(|body| Leaving::new(body, guard)))
            }
        });
        let mut builder = http1::Builder::new();
        // The stream's own timeouts distinguish an idle client from a slow one.
        builder.header_read_timeout(None).max_buf_size(HEAD_BYTES_MAX);
        // For most answers, copying head and body into one buffer is cheaper than a vectored write.
        builder.writev(false);
        let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            // A connection error affects only this client; the listener continues.
            _ = served.as_mut() => return,
            () = self.stop.cancelled() => {}
        }
        if !progress.is_in_request() {
            let last = timeout(LAST_REQUEST_GRACE.min(self.bounds.stop_grace), served.as_mut());
            if last.await.is_ok() || !progress.is_in_request() {
                return;
            }
        }
        served.as_mut().graceful_shutdown();
        let half_sent = HALF_SENT_GRACE.min(self.bounds.stop_grace);
        if timeout(half_sent, served.as_mut()).await.is_ok() || progress.is_arriving() {
            return;
        }
        drop(timeout(self.bounds.stop_grace.saturating_sub(half_sent), served).await);
    }
}

/// `true` if accepting failed because of one client.
fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    [ConnectionAborted, ConnectionRefused, ConnectionReset].contains(&error.kind())
}
