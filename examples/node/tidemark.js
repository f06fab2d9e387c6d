// Signatures of Tidemark: what a merchant's backend makes and verifies. Node.js 16, no packages.
//
// MERCHANT_SECRET=… node tidemark.js sign 1790000000 '{"order_id":"A-1"}'
// MERCHANT_SECRET=… node tidemark.js verify 1790000000 '<Service-Signature>' '<body>'
// MERCHANT_SECRET=… node tidemark.js link <order_id> 1790000000
// MERCHANT_SECRET=… node tidemark.js proof <order_id> paid '<proof>'
'use strict';
const { createHmac, timingSafeEqual } = require('crypto');

// The Service-Signature of a request; timestamp is the present Unix time, body a string or a Buffer.
function signRequest(secret, timestamp, body) {
  const mac = createHmac('sha256', secret).update(`${timestamp}.`).update(body);
  return `${timestamp}.${mac.digest('base64')}`;
}

// Whether a webhook is Tidemark's. The body is the bytes as they came, before any JSON parser.
function isGenuine(secret, now, header, body) {
  const timestamp = (header ?? '').split('.')[0];
  if (!/^[0-9]{1,12}$/.test(timestamp) || Math.abs(now - Number(timestamp)) > 300) return false;
  return isEqual(signRequest(secret, Number(timestamp), body), header);
}

// In constant time.
function isEqual(wanted, given) {
  const [one, other] = [Buffer.from(wanted), Buffer.from(given)];
  return one.length === other.length && timingSafeEqual(one, other);
}

// The query of the checkout link of one order, which holds until the Unix time exp.
function checkoutQuery(secret, orderId, exp) {
  const mac = createHmac('sha256', secret).update(`checkout.v1.${orderId}.${exp}`);
  return `exp=${exp}&sig=${mac.digest('base64url')}`;
}

// Whether {proof} of merchant.return_url shows that the order had this status, at the Unix time before its point.
function isProof(secret, orderId, status, proof) {
  const time = (proof ?? '').split('.')[0];
  if (!/^[0-9]{1,12}$/.test(time)) return false;
  const mac = createHmac('sha256', secret).update(`return.v1.${orderId}.${status}.${time}`);
  return isEqual(`${time}.${mac.digest('base64url')}`, proof);
}

module.exports = { signRequest, isGenuine, checkoutQuery, isProof };

if (require.main === module) {
  const secret = process.env.MERCHANT_SECRET;
  const [command, first, second, third] = process.argv.slice(2);
  if (command === 'sign') console.log(signRequest(secret, Number(first), second));
  if (command === 'verify') {
    console.log(isGenuine(secret, Number(first), second, third) ? 'genuine' : 'refused');
  }
  if (command === 'proof') console.log(isProof(secret, first, second, third) ? 'genuine' : 'refused');
  if (command === 'link') console.log(checkoutQuery(secret, first, Number(second)));
}
