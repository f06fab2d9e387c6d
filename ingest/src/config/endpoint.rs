//! `rpc`: the endpoints of a chain, each a URL or a table.

use reqwest::header::HeaderName;
use runtime::config::Reader;
use schemas::{Blockchain, Secret};

/// Default weight; 1 to 1000 can be configured.
const WEIGHT: u64 = 100;
/// Header in which TronGrid expects the key.
const TRON_HEADER: &str = "tron-pro-api-key";

/// One endpoint of a chain.
#[derive(Debug, Clone)]
pub struct EndpointConfig {
    pub url: RpcUrl,
    /// Of the endpoints that work, the one with the greatest weight is asked; of equal ones the first.
    pub weight: u64,
    /// Maximum calls in a second; `None` for no limit.
    pub requests_per_second: Option<u64>,
    /// Sent with each request.
    pub api_key: Option<ApiKey>,
    /// Tron's own HTTP interface, where it is known.
    pub native: Option<NativeConfig>,
}

/// The address in front of `/walletsolidity/`.
#[derive(Debug, Clone)]
pub struct NativeConfig {
    pub(crate) url: RpcUrl,
    /// `true` if configured; an address guessed from the JSON-RPC URL may be wrong.
    pub(crate) is_given: bool,
}

/// A header that holds a key.
#[derive(Debug, Clone)]
pub struct ApiKey {
    pub(crate) header: HeaderName,
    pub(crate) key: Secret,
}

impl EndpointConfig {
    /// An endpoint of a chain with defaults: on Tron with a guessed address of the native interface, because providers
    /// serve both at one address.
    #[must_use]
    pub fn of(blockchain: Blockchain, url: RpcUrl) -> Self {
        let native = (blockchain == Blockchain::Tron).then(|| url.before("jsonrpc")).flatten();
        let native = native.map(|url| NativeConfig { url, is_given: false });
        Self { url, weight: WEIGHT, requests_per_second: None, api_key: None, native }
    }

    /// Returns the secrets that messages may not repeat.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let key = self.api_key.iter().map(|api| String::from_utf8_lossy(api.key.expose()).into());
        let native = self.native.iter().flat_map(|native| native.url.secrets());
        self.url.secrets().into_iter().chain(native).chain(key).collect()
    }
}

/// Address of an endpoint. Providers put keys into path, query and user info: `Display` and `Debug` show scheme, host
/// and port only.
#[derive(Clone, PartialEq, Eq)]
pub struct RpcUrl(reqwest::Url);

impl RpcUrl {
    /// Reads an `http` or `https` URL; none for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let url = reqwest::Url::parse(text).ok()?;
        (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(Self(url))
    }

    pub(crate) fn url(&self) -> &reqwest::Url {
        &self.0
    }

    /// The address of a path below this one.
    pub(crate) fn at(&self, path: &str) -> reqwest::Url {
        let mut url = self.0.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path.split('/'));
        }
        url
    }

    /// The address without its last part, if that is `last`.
    fn before(&self, last: &str) -> Option<Self> {
        let mut url = self.0.clone();
        let is_last = url.path_segments()?.rfind(|part| !part.is_empty()) == Some(last);
        url.path_segments_mut().ok()?.pop_if_empty().pop();
        is_last.then_some(Self(url))
    }

    /// The parts of more than five characters: each may be a key.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let path = self.0.path_segments().into_iter().flatten().map(str::to_owned);
        let query = self.0.query_pairs().map(|(_, value)| value.into_owned());
        let login = [self.0.username(), self.0.password().unwrap_or_default()];
        path.chain(query).chain(login.map(str::to_owned)).filter(|part| part.len() > 5).collect()
    }
}

impl std::fmt::Display for RpcUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", self.0.scheme(), self.0.host_str().unwrap_or_default())?;
        self.0.port().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl std::fmt::Debug for RpcUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// Reads `rpc`. A text may list several, separated by commas: an environment variable has no other form.
pub(super) fn read(blockchain: Blockchain, section: &mut Reader) -> Vec<EndpointConfig> {
    let value = section.value("rpc");
    let text = value.as_ref().and_then(|value| value.as_str());
    let listed = text
        .into_iter()
        .flat_map(|text| text.split(','))
        .map(|part| plain(blockchain, part.trim()));
    let mut found: Vec<Option<EndpointConfig>> = listed.collect();
    for item in value.iter().filter_map(|value| value.as_array()).flatten() {
        let position = found.len();
        found.push(match item.as_table() {
            Some(table) => {
                read_table(blockchain, section.nested(&format!("rpc[{position}]"), table.clone()))
            }
            None => item.as_str().and_then(|text| plain(blockchain, text)),
        });
    }
    // The text itself may hold a key and is not repeated.
    if found.iter().any(Option::is_none) {
        section.problem("rpc", "must be a list of http or https URLs, or of { url, … }");
    } else if found.is_empty() {
        section.problem("rpc", "must name at least one endpoint");
    }
    let endpoints: Vec<EndpointConfig> = found.into_iter().flatten().collect();
    let is_twice = |(position, endpoint): (usize, &EndpointConfig)| {
        endpoints.iter().take(position).any(|other| other.url == endpoint.url)
    };
    if endpoints.iter().enumerate().any(is_twice) {
        section.problem("rpc", "names an endpoint twice");
    }
    endpoints
}

fn plain(blockchain: Blockchain, text: &str) -> Option<EndpointConfig> {
    RpcUrl::parse(text).map(|url| EndpointConfig::of(blockchain, url))
}

fn read_table(blockchain: Blockchain, mut reader: Reader) -> Option<EndpointConfig> {
    let url = RpcUrl::parse(&reader.text("url"));
    let weight = reader.optional_integer("weight", 1..=1000).unwrap_or(WEIGHT);
    let requests_per_second = reader.optional_integer("requests_per_second", 1..=100_000);
    let key = reader.shared_secret("api_key");
    let on_tron = (blockchain == Blockchain::Tron).then(|| TRON_HEADER.to_owned());
    let given = reader.optional_text("api_key_header");
    let header = given.clone().or(on_tron).map(|name| name.parse::<HeaderName>().ok());
    let api_key = match (key, header) {
        (Some(key), Some(Some(header))) => Some(ApiKey { header, key }),
        (Some(_), None) => {
            reader.problem("api_key_header", "is missing: the header that takes api_key");
            None
        }
        (_, Some(None)) => {
            reader.problem("api_key_header", "is not the name of a header");
            None
        }
        (None, _) => {
            if given.is_some() {
                reader.problem("api_key", "is missing: api_key_header is given");
            }
            None
        }
    };
    let native = reader.optional_text("native");
    let given = native.as_deref().filter(|text| !text.is_empty()).map(RpcUrl::parse);
    if native.is_some() && blockchain != Blockchain::Tron {
        reader.problem("native", "is an interface of tron alone");
    } else if given == Some(None) {
        // The text itself may hold a key and is not repeated.
        reader.problem("native", "must be an http or https URL, or \"\" for none");
    }
    reader.finish();
    let mut endpoint = EndpointConfig::of(blockchain, url?);
    if native.is_some() {
        endpoint.native = given.flatten().map(|url| NativeConfig { url, is_given: true });
    }
    Some(EndpointConfig { weight, requests_per_second, api_key, ..endpoint })
}
