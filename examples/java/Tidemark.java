// Signatures of Tidemark: what a merchant's backend makes and verifies. Java 11, no packages.
//
// MERCHANT_SECRET=… java Tidemark.java sign 1790000000 '{"order_id":"A-1"}'
// MERCHANT_SECRET=… java Tidemark.java verify 1790000000 '<Service-Signature>' '<body>'
// MERCHANT_SECRET=… java Tidemark.java link <order_id> 1790000000
// MERCHANT_SECRET=… java Tidemark.java proof <order_id> paid '<proof>'

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Base64;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

public class Tidemark {
    private final byte[] secret;

    public Tidemark(byte[] secret) {
        this.secret = secret.clone();
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private byte[] mac(byte[]... parts) throws GeneralSecurityException {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(secret, "HmacSHA256"));
        for (byte[] part : parts) {
            mac.update(part);
        }
        return mac.doFinal();
    }

    /** The Service-Signature of a request; timestamp is the present Unix time. */
    public String signRequest(long timestamp, byte[] body) throws GeneralSecurityException {
        byte[] mac = mac(utf8(timestamp + "."), body);
        return timestamp + "." + Base64.getEncoder().encodeToString(mac);
    }

    /** Whether a webhook is Tidemark's. The body is the bytes as they came, before any JSON parser. */
    public boolean isGenuine(long now, String header, byte[] body) throws GeneralSecurityException {
        String timestamp = header == null ? "" : header.split("\\.", 2)[0];
        if (!timestamp.matches("[0-9]{1,12}")) {
            return false;
        }
        long sent = Long.parseLong(timestamp);
        if (Math.abs(now - sent) > 300) {
            return false;
        }
        // Takes the same time wherever the two differ.
        return MessageDigest.isEqual(utf8(signRequest(sent, body)), utf8(header));
    }

    /** The query of the checkout link of one order, which holds until the Unix time exp. */
    public String checkoutQuery(String orderId, long exp) throws GeneralSecurityException {
        return "exp=" + exp + "&sig=" + urlMac("checkout.v1." + orderId + "." + exp);
    }

    private String urlMac(String text) throws GeneralSecurityException {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(mac(utf8(text)));
    }

    /** Whether {proof} of merchant.return_url shows that the order had this status, at the Unix time before its point. */
    public boolean isProof(String orderId, String status, String proof) throws GeneralSecurityException {
        String time = proof == null ? "" : proof.split("\\.", 2)[0];
        if (!time.matches("[0-9]{1,12}")) {
            return false;
        }
        String wanted = time + "." + urlMac("return.v1." + orderId + "." + status + "." + time);
        return MessageDigest.isEqual(utf8(wanted), utf8(proof));
    }

    public static void main(String[] args) throws GeneralSecurityException {
        Tidemark tidemark = new Tidemark(utf8(System.getenv("MERCHANT_SECRET")));
        switch (args[0]) {
            case "sign":
                System.out.println(tidemark.signRequest(Long.parseLong(args[1]), utf8(args[2])));
                break;
            case "verify":
                boolean genuine = tidemark.isGenuine(Long.parseLong(args[1]), args[2], utf8(args[3]));
                System.out.println(genuine ? "genuine" : "refused");
                break;
            case "proof":
                System.out.println(tidemark.isProof(args[1], args[2], args[3]) ? "genuine" : "refused");
                break;
            case "link":
                System.out.println(tidemark.checkoutQuery(args[1], Long.parseLong(args[2])));
                break;
            default:
                System.exit(64);
        }
    }
}
