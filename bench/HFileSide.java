import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.io.ByteArraySeekableDataInputStream;
import org.apache.hudi.io.ByteBufferBackedInputStream;
import org.apache.hudi.io.hfile.CachingHFileReaderImpl;
import org.apache.hudi.io.hfile.HFileReader;
import org.apache.hudi.io.hfile.HFileReaderImpl;
import org.apache.hudi.io.hfile.KeyValue;
import org.apache.hudi.io.hfile.UTF8StringKey;
import org.apache.hudi.io.storage.HFileReaderFactory;
import org.apache.hudi.io.storage.HoodieNativeAvroHFileReader;
import org.apache.hudi.storage.StoragePath;
import org.apache.hudi.storage.hadoop.HoodieHadoopStorage;

/**
 * Hudi's own HFile reader: looks up the keys of a file of sorted keys (one a line) in an HFile, once for each line on
 * standard input, and answers "milliseconds found".
 *
 * uncached: a new reader of the file as Hudi's factory makes it, without block cache; the values' bytes are taken.
 * memory: a new reader of bytes that were read before, no values. cached: a reader with a block cache that holds the
 * whole file, no values. records: the reader that the metadata table uses, its default block cache, values decoded to
 * Avro records.
 */
public class HFileSide {
  private static final int BLOCKS = 10_000;

  public static void main(String[] args) throws Exception {
    byte[] data = Files.readAllBytes(Path.of(args[0]));
    List<String> keys = Files.readAllLines(Path.of(args[1]), StandardCharsets.UTF_8);
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    System.out.println("ready");
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      long started = System.nanoTime();
      int found = line.equals("records") ? records(args[0], keys)
          : line.equals("uncached") ? seek(ofFile(args[0]), keys, new byte[keys.size()][])
          : seek(inMemory(line, args[0], data), keys, null);
      System.out.println((System.nanoTime() - started) / 1e6 + " " + found);
    }
  }

  private static HFileReader ofFile(String path) throws Exception {
    TypedProperties properties = new TypedProperties();
    properties.setProperty("hoodie.hfile.block.cache.enabled", "false");
    return factory(path, properties).createHFileReader();
  }

  private static HFileReaderFactory factory(String path, TypedProperties properties) {
    return HFileReaderFactory.builder()
        .withStorage(new HoodieHadoopStorage(path, new Configuration()))
        .withProps(properties)
        .withPath(new StoragePath(path))
        .build();
  }

  private static HFileReader inMemory(String how, String path, byte[] data) {
    ByteArraySeekableDataInputStream stream =
        new ByteArraySeekableDataInputStream(new ByteBufferBackedInputStream(data));
    return how.equals("cached")
        ? new CachingHFileReaderImpl(stream, data.length, path, BLOCKS, 60)
        : new HFileReaderImpl(stream, data.length);
  }

  private static int seek(HFileReader reader, List<String> keys, byte[][] values) throws Exception {
    int found = 0;
    reader.initializeMetadata();
    // a reader that stands nowhere takes every key to lie behind the end
    reader.seekTo();
    for (String key : keys) {
      if (reader.seekTo(new UTF8StringKey(key)) == HFileReader.SEEK_TO_FOUND && reader.getKeyValue().isPresent()) {
        if (values != null) {
          KeyValue entry = reader.getKeyValue().get();
          int start = entry.getValueOffset();
          values[found] = Arrays.copyOfRange(entry.getBytes(), start, start + entry.getValueLength());
        }
        found++;
      }
    }
    reader.close();
    return found;
  }

  private static int records(String path, List<String> keys) throws Exception {
    HoodieNativeAvroHFileReader reader = HoodieNativeAvroHFileReader.builder()
        .readerFactory(factory(path, new TypedProperties()))
        .path(new StoragePath(path))
        .useBloomFilter(false)
        .build();
    int found = 0;
    try (var records = reader.getRecordsByKeysIterator(keys, reader.getSchema())) {
      while (records.hasNext()) {
        records.next();
        found++;
      }
    }
    reader.close();
    return found;
  }
}
