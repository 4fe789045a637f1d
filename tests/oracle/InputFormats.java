import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configurable;
import org.apache.hadoop.io.ArrayWritable;
import org.apache.hadoop.io.NullWritable;
import org.apache.hadoop.io.Writable;
import org.apache.hadoop.mapred.FileInputFormat;
import org.apache.hadoop.mapred.InputSplit;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.RecordReader;
import org.apache.hadoop.mapred.Reporter;
import org.apache.hudi.hadoop.HoodieParquetInputFormat;
import org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat;

/**
 * Reads tables by Hudi's input formats, which Hive, Presto and Athena use.
 *
 * Each line of standard input is a read: "realtime" or "plain", column names, their Hive types, and the folders of the
 * partitions, with tabs between (names and types with commas). It prints a line "ROW" with the values of each row, with
 * tabs between, and "END" after each read.
 */
public class InputFormats {
  private static final String META =
      "_hoodie_commit_time,_hoodie_commit_seqno,_hoodie_record_key,_hoodie_partition_path,_hoodie_file_name";
  private static final int META_COLUMNS = 5;

  public static void main(String[] arguments) throws Exception {
    BufferedReader reads = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = reads.readLine(); line != null; line = reads.readLine()) {
      String[] read = line.split("\t");
      print(read[0].equals("realtime"), read[1], read[2], read[3]);
      System.out.println("END");
    }
    System.exit(0);
  }

  private static void print(boolean realtime, String names, String types, String folders) throws Exception {
    int columns = META_COLUMNS + names.split(",").length;
    StringBuilder numbers = new StringBuilder("0");
    for (int at = 1; at < columns; at++) {
      numbers.append(',').append(at);
    }
    JobConf job = new JobConf();
    job.set("columns", META + "," + names);
    job.set("columns.types", "string,string,string,string,string," + types);
    job.set("hive.io.file.readcolumn.names", META + "," + names);
    job.set("hive.io.file.readcolumn.ids", numbers.toString());
    job.set("mapreduce.input.fileinputformat.inputdir", folders);
    FileInputFormat<NullWritable, ArrayWritable> format =
        realtime ? new HoodieParquetRealtimeInputFormat() : new HoodieParquetInputFormat();
    ((Configurable) format).setConf(job);
    for (InputSplit split : format.getSplits(job, 1)) {
      RecordReader<NullWritable, ArrayWritable> rows = format.getRecordReader(split, job, Reporter.NULL);
      NullWritable key = rows.createKey();
      ArrayWritable row = rows.createValue();
      while (rows.next(key, row)) {
        Writable[] values = row.get();
        StringBuilder line = new StringBuilder("ROW");
        for (int at = META_COLUMNS; at < columns; at++) {
          line.append('\t').append(at < values.length ? values[at] : "no column");
        }
        System.out.println(line);
      }
      rows.close();
    }
  }
}
