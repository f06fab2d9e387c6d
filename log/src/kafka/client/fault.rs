//! Errors of a consumer that concern the caller of a poll.

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::{Cause, Error};

/// Maps an error of a consumer to that of its poll; none if the library recovers by itself.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library has many codes, and recovers from most"
)]
pub(crate) fn of_poll(error: KafkaError) -> Option<Error> {
    let code = match &error {
        KafkaError::MessageConsumptionFatal(code) => {
            return Some(Error::Fatal(Cause::new(format!("the consumer failed: {code}"), error)));
        }
        other => other.rdkafka_error_code()?,
    };
    match code {
        // The library skips records that it cannot read; a consumer of payments must not.
        Code::BadMessage | Code::BadCompression | Code::NotImplemented => {
            Some(Error::Fatal(Cause::new(format!("received damaged records: {code}"), error)))
        }
        Code::AllBrokersDown => {
            Some(Error::Transient(Cause::new("no broker can be reached", error)))
        }
        Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::InvalidGroupId
        | Code::InvalidSessionTimeout
        | Code::InconsistentGroupProtocol
        | Code::GroupMaxSizeReached
        | Code::UnknownTopicOrPartition
        | Code::UnknownTopic
        | Code::UnknownPartition => Some(Error::Transient(Cause::new(code.to_string(), error))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_fails_only_for_what_the_caller_must_know() {
        let of = |code| of_poll(KafkaError::MessageConsumption(code));
        for code in [
            Code::AllBrokersDown,
            Code::Authentication,
            Code::UnknownTopicOrPartition,
            Code::InvalidSessionTimeout,
        ] {
            assert!(matches!(of(code), Some(Error::Transient(_))), "{code}");
        }
        // After each of these the library skips records.
        for code in [Code::BadMessage, Code::BadCompression, Code::NotImplemented] {
            assert!(matches!(of(code), Some(Error::Fatal(_))), "{code}");
        }
        for code in [Code::BrokerTransportFailure, Code::PollExceeded] {
            assert!(of(code).is_none(), "{code}");
        }
        let fatal = KafkaError::MessageConsumptionFatal(Code::FencedInstanceId);
        assert!(matches!(of_poll(fatal), Some(Error::Fatal(_))));
    }
}
