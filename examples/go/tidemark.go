// Signatures of Tidemark: what a merchant's backend makes and verifies. Go 1.18, no modules.
//
//	MERCHANT_SECRET=… go run tidemark.go sign 1790000000 '{"order_id":"A-1"}'
//	MERCHANT_SECRET=… go run tidemark.go verify 1790000000 '<Service-Signature>' '<body>'
//	MERCHANT_SECRET=… go run tidemark.go link <order_id> 1790000000
//	MERCHANT_SECRET=… go run tidemark.go proof <order_id> paid '<proof>'
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"strconv"
	"strings"
)

func mac(secret []byte, text string) []byte {
	hash := hmac.New(sha256.New, secret)
	hash.Write([]byte(text))
	return hash.Sum(nil)
}

// SignRequest makes the Service-Signature of a request; timestamp is the present Unix time.
func SignRequest(secret []byte, timestamp int64, body string) string {
	sum := mac(secret, fmt.Sprintf("%d.%s", timestamp, body))
	return fmt.Sprintf("%d.%s", timestamp, base64.StdEncoding.EncodeToString(sum))
}

// IsGenuine reports whether a webhook is Tidemark's. The body is the bytes as they came, before any
// JSON parser.
func IsGenuine(secret []byte, now int64, header, body string) bool {
	timestamp, _, _ := strings.Cut(header, ".")
	sent, err := strconv.ParseUint(timestamp, 10, 40)
	if err != nil || int64(sent) < now-300 || int64(sent) > now+300 {
		return false
	}
	return hmac.Equal([]byte(SignRequest(secret, int64(sent), body)), []byte(header))
}

// CheckoutQuery makes the query of the checkout link of one order, which holds until the Unix time exp.
func CheckoutQuery(secret []byte, orderID string, exp int64) string {
	sum := mac(secret, fmt.Sprintf("checkout.v1.%s.%d", orderID, exp))
	return fmt.Sprintf("exp=%d&sig=%s", exp, base64.RawURLEncoding.EncodeToString(sum))
}

// IsProof reports whether {proof} of merchant.return_url shows that the order had this status, at the Unix
// time before its point.
func IsProof(secret []byte, orderID, status, proof string) bool {
	time, _, _ := strings.Cut(proof, ".")
	if _, err := strconv.ParseUint(time, 10, 40); err != nil {
		return false
	}
	sum := mac(secret, fmt.Sprintf("return.v1.%s.%s.%s", orderID, status, time))
	wanted := time + "." + base64.RawURLEncoding.EncodeToString(sum)
	return hmac.Equal([]byte(wanted), []byte(proof))
}

func verdict(isGenuine bool) string {
	if isGenuine {
		return "genuine"
	}
	return "refused"
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(64)
	}
	return value
}

func main() {
	secret, args := []byte(os.Getenv("MERCHANT_SECRET")), os.Args[1:]
	switch {
	case len(args) == 3 && args[0] == "sign":
		fmt.Println(SignRequest(secret, number(args[1]), args[2]))
	case len(args) == 4 && args[0] == "verify":
		fmt.Println(verdict(IsGenuine(secret, number(args[1]), args[2], args[3])))
	case len(args) == 4 && args[0] == "proof":
		fmt.Println(verdict(IsProof(secret, args[1], args[2], args[3])))
	case len(args) == 3 && args[0] == "link":
		fmt.Println(CheckoutQuery(secret, args[1], number(args[2])))
	default:
		os.Exit(64)
	}
}
