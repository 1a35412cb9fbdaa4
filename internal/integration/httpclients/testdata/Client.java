import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.cert.X509Certificate;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509TrustManager;

// Sends POST requests with HttpClient, in eight threads, until a response says that it is the last one, for
// two minutes at most.
class Client {
	public static void main(String[] args) throws Exception {
		var tls = SSLContext.getInstance("TLS");
		tls.init(null, new TrustManager[] {new X509TrustManager() {
			public void checkClientTrusted(X509Certificate[] chain, String type) {}
			public void checkServerTrusted(X509Certificate[] chain, String type) {}
			public X509Certificate[] getAcceptedIssuers() { return new X509Certificate[0]; }
		}}, null);
		var client = HttpClient.newBuilder().sslContext(tls).version(HttpClient.Version.valueOf(args[1])).build();
		var request = HttpRequest.newBuilder(URI.create(args[0])).POST(HttpRequest.BodyPublishers.ofString("hello")).build();
		var sent = new AtomicInteger();
		var failed = new AtomicInteger();
		var first = new AtomicReference<String>("");
		var ended = new AtomicBoolean();
		var end = System.nanoTime() + 120_000_000_000L;
		var threads = new Thread[8];
		for (int i = 0; i < threads.length; i++) {
			threads[i] = new Thread(() -> {
				while (!ended.get() && System.nanoTime() < end) {
					sent.incrementAndGet();
					try {
						var response = client.send(request, HttpResponse.BodyHandlers.ofString());
						if (response.statusCode() != 200) throw new Exception("status " + response.statusCode());
						if (response.body().equals("last")) ended.set(true);
					} catch (Exception e) {
						failed.incrementAndGet();
						first.compareAndSet("", e.toString());
					}
				}
			});
			threads[i].start();
		}
		for (var thread : threads) thread.join();
		System.out.println(sent + " " + failed + " " + first);
	}
}
