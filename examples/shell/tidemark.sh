#!/usr/bin/env bash
# Signatures of Tidemark: what a merchant's backend makes and verifies. Bash and openssl.
#
# MERCHANT_SECRET=… bash tidemark.sh sign 1790000000 '{"order_id":"A-1"}'
# MERCHANT_SECRET=… bash tidemark.sh verify 1790000000 '<Service-Signature>' '<body>'
# MERCHANT_SECRET=… bash tidemark.sh link <order_id> 1790000000
# MERCHANT_SECRET=… bash tidemark.sh proof <order_id> paid '<proof>'
#
# A signed request by curl:
#   BODY='{"order_id":"A-1","amount":"49.90","webhook_url":"https://shop.example/hooks"}'
#   curl https://pay.example/api/v1/service/orders -H 'Content-Type: application/json' -H 'Idempotency-Key: A-1' \
#     -H "Service-Signature: $(bash tidemark.sh sign "$(date +%s)" "$BODY")" -d "$BODY"
#
# openssl has the secret among its arguments, which other users of the machine can read: for trying, not for a shop.
set -euo pipefail

mac() { # key, text
  printf '%s' "$2" | openssl dgst -sha256 -hmac "$1" -binary | base64
}

sign_request() { # timestamp, body
  printf '%s.%s\n' "$1" "$(mac "$MERCHANT_SECRET" "$1.$2")"
}

verify() { # now, header, body
  local timestamp=${2%%.*}
  [[ $timestamp =~ ^[0-9]{1,12}$ ]] || { echo refused; return; }
  local age=$(($1 - 10#$timestamp))
  ((age >= -300 && age <= 300)) || { echo refused; return; }
  compare "$(sign_request "$timestamp" "$3")" "$2"
}

# A comparison of texts takes longer the more of them is equal: of their digests by a key of chance that says nothing.
compare() { # wanted, given
  local key
  key=$(openssl rand -hex 32)
  if [[ $(mac "$key" "$1") == "$(mac "$key" "$2")" ]]; then echo genuine; else echo refused; fi
}

url_mac() { # text
  mac "$MERCHANT_SECRET" "$1" | tr '+/' '-_' | tr -d '='
}

checkout_query() { # order id, exp
  printf 'exp=%s&sig=%s\n' "$2" "$(url_mac "checkout.v1.$1.$2")"
}

# {proof} of merchant.return_url: that the order had this status, at the Unix time before its point.
proof() { # order id, status, proof
  local time=${3%%.*}
  [[ $time =~ ^[0-9]{1,12}$ ]] || { echo refused; return; }
  compare "$time.$(url_mac "return.v1.$1.$2.$time")" "$3"
}

case $1 in
  sign) sign_request "$2" "$3" ;;
  verify) verify "$2" "$3" "$4" ;;
  link) checkout_query "$2" "$3" ;;
  proof) proof "$2" "$3" "$4" ;;
  *) exit 64 ;;
esac
