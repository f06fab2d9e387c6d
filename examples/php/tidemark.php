<?php
// Signatures of Tidemark: what a merchant's backend makes and verifies. PHP 8, no packages.
//
// MERCHANT_SECRET=… php tidemark.php sign 1790000000 '{"order_id":"A-1"}'
// MERCHANT_SECRET=… php tidemark.php verify 1790000000 '<Service-Signature>' '<body>'
// MERCHANT_SECRET=… php tidemark.php link <order_id> 1790000000
// MERCHANT_SECRET=… php tidemark.php proof <order_id> paid '<proof>'

declare(strict_types=1);

/** The Service-Signature of a request; $timestamp is the present Unix time. */
function sign_request(string $secret, int $timestamp, string $body): string
{
    return $timestamp . '.' . base64_encode(hash_hmac('sha256', "$timestamp.$body", $secret, true));
}

/** Whether a webhook is Tidemark's. $body is file_get_contents('php://input'), before any JSON parser. */
function is_genuine(string $secret, int $now, ?string $header, string $body): bool
{
    $timestamp = explode('.', $header ?? '', 2)[0];
    if (preg_match('/\A[0-9]{1,12}\z/', $timestamp) !== 1 || abs($now - (int) $timestamp) > 300) {
        return false;
    }
    return hash_equals(sign_request($secret, (int) $timestamp, $body), $header);
}

/** The query of the checkout link of one order, which holds until the Unix time $exp. */
function checkout_query(string $secret, string $orderId, int $exp): string
{
    return "exp=$exp&sig=" . url_mac($secret, "checkout.v1.$orderId.$exp");
}

function url_mac(string $secret, string $text): string
{
    return rtrim(strtr(base64_encode(hash_hmac('sha256', $text, $secret, true)), '+/', '-_'), '=');
}

/** Whether {proof} of merchant.return_url shows that the order had this status, at the Unix time before its point. */
function is_proof(string $secret, string $orderId, string $status, ?string $proof): bool
{
    $time = explode('.', $proof ?? '', 2)[0];
    return preg_match('/\A[0-9]{1,12}\z/', $time) === 1
        && hash_equals("$time." . url_mac($secret, "return.v1.$orderId.$status.$time"), $proof);
}

if (PHP_SAPI === 'cli' && realpath($argv[0]) === __FILE__) {
    $secret = (string) getenv('MERCHANT_SECRET');
    echo match ($argv[1]) {
        'sign' => sign_request($secret, (int) $argv[2], $argv[3]),
        'verify' => is_genuine($secret, (int) $argv[2], $argv[3], $argv[4]) ? 'genuine' : 'refused',
        'proof' => is_proof($secret, $argv[2], $argv[3], $argv[4]) ? 'genuine' : 'refused',
        'link' => checkout_query($secret, $argv[2], (int) $argv[3]),
    }, "\n";
}
